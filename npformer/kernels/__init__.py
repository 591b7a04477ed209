"""What the packages of kernels, ``npformer.cpu`` and ``npformer.gpu``, have in common."""
