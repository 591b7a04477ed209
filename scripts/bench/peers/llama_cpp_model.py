"""A Llama in llama.cpp, in float32 or in 8-bit integers."""

from itertools import islice

import gguf
import llama_cpp
import numpy as np

from scripts.bench.machine import physical_cores


def generation(path, prompt, n):
    """Greedy generation, that returns the new tokens."""
    n_threads = physical_cores()
    options = {
        "n_ctx": prompt.size + n,
        "n_batch": prompt.size,
        "n_threads": n_threads,
        "n_threads_batch": n_threads,
    }
    llama = llama_cpp.Llama(path, verbose=False, **options)
    prompt = prompt[0].tolist()

    def generate():
        llama.reset()
        return np.array(
            list(islice(llama.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0), n))
        )

    return generate


def converted(path, to, kind):
    """Write a GGUF file with the tensors of another one, its matrices in "F32" or "Q8_0"; return
    its name.
    """
    file = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, file.fields["general.architecture"].contents())
    for name, field in file.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of_field, *of_items = field.types
            writer.add_key_value(name, field.contents(), of_field, *of_items[:1])
    for tensor in file.tensors:
        x = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        x = x.reshape(tuple(reversed(tensor.shape)))
        stored_as = gguf.GGMLQuantizationType[kind if x.ndim > 1 else "F32"]
        writer.add_tensor(tensor.name, gguf.quants.quantize(x, stored_as), raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(to)
