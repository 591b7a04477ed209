"""The formulas, one idea per file, each backward pass directly below its forward pass.

The line above a function is its *contract*: it states the shapes of the arguments, and, after the
arrow, those of the results.

============================== ===================================================================
``x: ... D, weight: D F``      a letter is the size of an axis, the same in the whole contract;
                               dots are any number of leading axes
``qkv: B T (H+2*G)*K``         the size of an axis may be a product, or a sum in one
``q: ... T K>0``               this axis has at least one entry
``settings.n_heads = H``       an argument, or a field of one, that is a size
``n_kv_heads = G or H``        a size; if it is None, it is that of another letter
``keep_mask: ~ ... T S mask``  broadcasts to these axes; booleans
``ids: ... ids<V``             integers from 0 to V - 1
``loss: wide``                 a single number, in float32 if the arrays have half precision
``weight: N written``          the operation changes the array
============================== ===================================================================

``@backward_of(linear)`` derives the contract of ``linear_backward`` from that of ``linear``: ``dy``
has the shape of the result ``y``, and each gradient has the shape of its argument.
``npformer.operations.contract`` has the whole notation. The functions here are the math alone;
those with the same names in ``npformer.reference`` check their arguments first.

>>> from npformer import reference
>>> from npformer.reference.math.linear import linear
>>> {name: str(argument) for name, argument in linear.record.contract.arrays.items()}
{'x': '(..., D)', 'weight': '(D, F)', 'bias': '(F,)'}
>>> linear(np.ones((2, 5)), np.ones((5, 3))).shape
(2, 3)
>>> reference.linear(np.ones((2, 5)), np.ones((4, 3)))
Traceback (most recent call last):
npformer.UserError: weight has shape (4, 3), expected (D, F) with D = 5 from x (2, 5)
"""
