// What the libraries of this folder share. The first two functions are in libcuda.so.1.
#pragma once

#include <functional>

// Put work into a stream, or record it if the stream captures. Returns cudaSuccess or the error.
int enqueue(void* stream, std::function<void()> work);

// Whether the stream captures; if ``spoil``, the capture is invalid from then on.
bool captures(void* stream, bool spoil);
