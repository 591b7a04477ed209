"""A Llama in llama.cpp, in float32."""

from itertools import islice

import gguf
import llama_cpp
import numpy as np

from scripts.bench.machine import physical_cores


def generation(path, prompt, n):
    """Greedy generation, that returns the new tokens."""
    n_threads = physical_cores()
    options = {"n_ctx": prompt.size + n, "n_batch": prompt.size, "n_threads": n_threads, "n_threads_batch": n_threads}
    llama, prompt = llama_cpp.Llama(path, verbose=False, **options), prompt[0].tolist()

    def generate():
        llama.reset()
        return np.array(list(islice(llama.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0), n)))

    return generate


def in_float32(path, to):
    """Write a GGUF file with the tensors of another one in float32; return its name."""
    file = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, file.fields["general.architecture"].contents())
    for name, field in file.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, *of_items = field.types
            writer.add_key_value(name, field.contents(), kind, *of_items[:1])
    for tensor in file.tensors:
        x = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, x.reshape(tuple(reversed(tensor.shape))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(to)
