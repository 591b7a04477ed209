"use strict";
// Where one can start in the lab, and its questions, each with the arrays that it shows. It is JSON, which scripts and tests read too: rows and columns from 0.

const STARTS = {
  "attention": [
    {
      "id": "mixed", "title": "mixed numbers",
      "q": [[1, 0, 0.5], [0, 1, -0.5], [-1, 0.5, 1], [0.5, 0.5, 0]],
      "k": [[1, 0.5, 0], [0, 1, 0.5], [-0.5, 0, 1], [0.5, -1, 0.5]],
      "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
      "dout": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]]
    },
    {
      "id": "need", "title": "“Attention is all you need”: ‘is’ asks",
      "names": {"query": ["is"], "key": ["Attention", "is", "all", "you", "need"]}, "numbers": {"query": [2]},
      "q": [[0, 2, 0, 1]],
      "k": [[0, 2, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 1, 1]],
      "v": [[2, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 2, 0], [0, 0, 1, 1]],
      "dout": [[1, 0, 0, 0]]
    },
    {
      "id": "idea", "title": "“that is a good idea”: e₂, ‘is’, asks",
      "names": {"query": ["is"], "key": ["that", "is", "a", "good", "idea"]}, "numbers": {"query": [2]},
      "q": [[1, 0, 1]],
      "k": [[2, 0, 1], [1, 1, 1], [1, 1, 0], [0, 2, 0], [2, 0, 0]],
      "v": [[1, 0, 1], [0, 1, 2], [1, 1, 1], [0, 2, 2], [2, 0, 0]],
      "dout": [[1, 0, 0]]
    },
    {
      "id": "dictionary", "title": "a dictionary: each query equals one key", "scale": 8,
      "q": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]],
      "k": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]],
      "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
      "dout": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]]
    },
    {
      "id": "equal", "title": "equal scores: the mean of the values",
      "q": [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
      "k": [[1, 0.5, 0], [0, 1, 0.5], [-0.5, 0, 1], [0.5, -1, 0.5]],
      "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
      "dout": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]]
    },
    {
      "id": "large", "title": "large scores: the gradients vanish", "scale": 20,
      "q": [[1, 0, 0.5], [0, 1, -0.5], [-1, 0.5, 1], [0.5, 0.5, 0]],
      "k": [[1, 0.5, 0], [0, 1, 0.5], [-0.5, 0, 1], [0.5, -1, 0.5]],
      "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
      "dout": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]]
    },
    {
      "id": "none", "title": "a query that may attend to no key",
      "q": [[1, 0, 0.5], [0, 1, -0.5], [-1, 0.5, 1], [0.5, 0.5, 0]],
      "k": [[1, 0.5, 0], [0, 1, 0.5], [-0.5, 0, 1], [0.5, -1, 0.5]],
      "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
      "dout": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, -0.5, 1]],
      "keep_mask": [[true, true, true, true], [true, true, true, true], [false, false, false, false], [true, true, true, true]]
    }
  ],
  "softmax": [
    {"id": "logs", "title": "logarithms: log 1, log 2, log 5", "x": [[0, 0.693147, 1.609438]], "dy": [[8, 0, 0]]},
    {
      "id": "is", "title": "the scores of ‘is’ in “Attention is all you need”", "names": {"score": ["Attention", "is", "all", "you", "need"]},
      "x": [[2, 1.5, 0, 1, 0.5]], "dy": [[1, 0, 0, 0, -1]]
    },
    {"id": "equal", "title": "equal scores", "x": [[0, 0, 0, 0]], "dy": [[1, 0, 0, 0]]},
    {"id": "loss", "title": "the gradient of −log p: the third token is wanted", "x": [[0, 0.693147, 1.609438]], "dy": [[0, 0, -1.6]]}
  ],
  "layer_norm": [
    {
      "id": "row", "title": "the row of the book: −4, 2, 4, 10",
      "x": [[-4, 2, 4, 10]], "gain": [[1, 2, 1, 0.5]], "bias": [[0, 0, 0, 1]], "dy": [[0, 5, 0, 10]]
    },
    {
      "id": "e2", "title": "e₂ + z₂, the vector of ‘is’ after attention",
      "x": [[0.9323, 1.4705, 2.0677]], "gain": [[1, 1, 1]], "bias": [[0, 0, 0]], "dy": [[1, 0, 0]]
    }
  ]
};

const QUESTIONS = {
  "attention": [
    {
      "id": "value", "title": "A larger value", "start": "need", "watch": ["weights", 0, 3],
      "shows": ["q", "k", "v", "scores", "weights", "out"],
      "change": [["v", 3, 2, 20]],
      "story": "The value of ‘you’ becomes ten times as large. Does ‘is’ give it more weight?",
      "lesson": "A weight is made of the query and the keys. The value comes after it: it is what is handed over, not how much of it is taken. Only out has changed."
    },
    {
      "id": "key", "title": "Another key", "start": "need", "watch": ["weights", 0, 2],
      "shows": ["q", "k", "scores", "weights"],
      "change": [["k", 3, 3, 4]],
      "story": "The key of ‘you’ fits the query better. Nobody touches ‘all’: does its weight change?",
      "lesson": "The weights of a query share 1: if one gains, all others lose, by the same factor. So every key has an influence on every weight."
    },
    {
      "id": "longer", "title": "A longer query", "start": "need", "watch": ["weights", 0, 1],
      "shows": ["q", "scores", "weights"],
      "change": [["q", 0, 1, 4], ["q", 0, 3, 2]],
      "story": "The query of ‘is’ becomes twice as long, so all its scores double. Its own score rises from 1.5 to 3. What does the weight that it gives itself do?",
      "lesson": "The score rises and its weight falls: softmax compares, and the score of ‘Attention’ rises by more. The longer the query, the more of the weight goes to the best key. This is why scores are divided by √K."
    },
    {
      "id": "unseen", "title": "A longer key", "start": "idea", "watch": ["weights", 0, 3],
      "shows": ["q", "k", "scores", "weights"],
      "change": [["k", 3, 1, 6]],
      "story": "e₂ has become the query q₂ = (1, 0, 1). The key of ‘good’, (0, 2, 0), becomes three times as long. What does its weight do?",
      "lesson": "A score is a dot product: where the query is 0, the key may be as long as it likes. It is not seen."
    },
    {
      "id": "alone", "title": "One key left", "start": "mixed", "watch": ["weights", 0, 0],
      "shows": ["q", "k", "keep_mask", "scores", "weights", "dscores", "dq"],
      "change": [["keep_mask", 0, 1, false], ["keep_mask", 0, 2, false], ["keep_mask", 0, 3, false]],
      "story": "Query 1 may now read key 1 alone, as under a causal mask. How large does its weight become?",
      "lesson": "e / e = 1, whatever the score is. So the score has no influence left, and the gradients of query 1 have become 0: look at the first row of dq."
    },
    {
      "id": "slope", "title": "Ask the gradient", "start": "mixed", "watch": ["loss", 0, 0],
      "shows": ["q", "k", "v", "dout", "scores", "weights", "out", "loss", "dq"],
      "change": [["q", 1, 1, 1.5]],
      "story": "Component 2 of query 2 rises by a half. What does the loss do? One of the tables tells you before you compute anything.",
      "lesson": "This is what a gradient is for: dq₂₂ says how fast the loss changes with this number, without trying."
    },
    {
      "id": "sharp", "title": "A larger scale", "start": "mixed", "watch": ["dscores", 0, 0],
      "shows": ["scale", "q", "k", "v", "dout", "scores", "weights", "dweights", "dscores"],
      "change": [["scale", 0, 0, 20]],
      "story": "The scale rises from 1/√3 to 20: the best key now gets nearly all the weight. What does the gradient of its score do?",
      "lesson": "Where a weight is nearly 1 or 0, a small change of a score changes it no more. The gradient vanishes, and the model stops learning where to look."
    }
  ],
  "softmax": [
    {
      "id": "shift", "title": "All scores higher", "start": "logs", "watch": ["y", 0, 0],
      "shows": ["x", "e", "y"],
      "change": [["x", 0, 0, 3], ["x", 0, 1, 3.693147], ["x", 0, 2, 4.609438]],
      "story": "All three scores rise by 3. What does the first weight do?",
      "lesson": "Only differences of scores count. This is why a program may subtract the largest score first, so that exp never overflows."
    },
    {
      "id": "others", "title": "One score higher", "start": "logs", "watch": ["y", 0, 0],
      "shows": ["x", "e", "y"],
      "change": [["x", 0, 2, 2.302585]],
      "story": "Score 3 rises from log 5 to log 10. Score 1 stays 0. What does weight 1 do, and how large is it then?",
      "lesson": "e₁ is still 1, and the sum has grown from 8 to 13: weight 1 pays a part of what weight 3 gains."
    },
    {
      "id": "double", "title": "Scores twice as large", "start": "logs", "watch": ["y", 0, 1],
      "shows": ["x", "e", "y"],
      "change": [["x", 0, 1, 1.386294], ["x", 0, 2, 3.218876]],
      "story": "All scores become twice as large, score 2 too. What does weight 2 do?",
      "lesson": "Doubled scores square every e: 1, 2, 5 become 1, 4, 25. The largest takes from all others, although their scores rise."
    },
    {
      "id": "certain", "title": "Nearly certain", "start": "logs", "watch": ["dx", 0, 0],
      "shows": ["x", "dy", "y", "dx"],
      "change": [["x", 0, 0, 5]],
      "story": "Score 1 rises from 0 to 5, so that weight 1 is nearly 1. dy stays. What does its gradient dx₁ do?",
      "lesson": "y₁ (1 − y₁) is large in the middle and nearly 0 at both ends: where softmax is certain, hardly any gradient comes through."
    },
    {
      "id": "constant", "title": "All of dy higher", "start": "logs", "watch": ["dx", 0, 0],
      "shows": ["x", "dy", "y", "mean", "dx"],
      "change": [["dy", 0, 0, 11], ["dy", 0, 1, 3], ["dy", 0, 2, 3]],
      "story": "Every entry of dy rises by 3. What does dx₁ do?",
      "lesson": "The weights always add up to 1. A loss that pulls at all of them alike pulls at nothing: softmax passes on only how dy differs from its mean."
    },
    {
      "id": "pays", "title": "Who pays?", "start": "logs", "watch": ["dx", 0, 2],
      "shows": ["x", "dy", "y", "mean", "dx"],
      "change": [["dy", 0, 0, 16]],
      "story": "dy₁ doubles from 8 to 16; dy₃ stays 0. What does dx₃ do?",
      "lesson": "A row of dx adds up to 0. What weight 1 wants, the other scores must give: each in proportion to its own weight."
    }
  ],
  "layer_norm": [
    {
      "id": "higher", "title": "A hundred more", "start": "row", "watch": ["y", 0, 0],
      "shows": ["x", "gain", "bias", "mean", "variance", "rstd", "x_hat", "y"],
      "change": [["x", 0, 0, 96], ["x", 0, 1, 102], ["x", 0, 2, 104], ["x", 0, 3, 110]],
      "story": "Every entry of x rises by 100. What does y₁ do?",
      "lesson": "The mean rises by 100, too, and is subtracted. What all entries have in common is lost, in x̂ and in the gradient."
    },
    {
      "id": "tenfold", "title": "Ten times as large", "start": "row", "watch": ["dx", 0, 1],
      "shows": ["x", "gain", "bias", "dy", "rstd", "y", "dx"],
      "change": [["x", 0, 0, -40], ["x", 0, 1, 20], ["x", 0, 2, 40], ["x", 0, 3, 100]],
      "story": "x becomes ten times as large. Then y stays as it is, and so does dy. What does the gradient dx₂ do?",
      "lesson": "y does not see how long x is. But a step of x by 1 is now a tenth of the standard deviation, so it moves y a tenth as far: dx is multiplied by rstd."
    },
    {
      "id": "outlier", "title": "One outlier", "start": "row", "watch": ["x_hat", 0, 3],
      "shows": ["x", "mean", "variance", "rstd", "x_hat"],
      "change": [["x", 0, 3, 1000]],
      "story": "Entry 4 rises from 10 to 1000. What does x̂₄ do, and how large is it then?",
      "lesson": "One entry of four can never be further than √3 = 1.732 standard deviations from the mean: it makes the deviation large itself."
    },
    {
      "id": "untouched", "title": "An untouched entry", "start": "row", "watch": ["x_hat", 0, 1],
      "shows": ["x", "mean", "variance", "rstd", "x_hat"],
      "change": [["x", 0, 3, 20]],
      "story": "Entry 4 rises from 10 to 20. Entry 2 stays 2. What does x̂₂ do?",
      "lesson": "x̂₂ is measured from the mean and in standard deviations, and entry 4 moves both. Each entry of y depends on all of x."
    },
    {
      "id": "gain", "title": "A larger gain", "start": "row", "watch": ["y", 0, 1],
      "shows": ["x", "gain", "bias", "x_hat", "y"],
      "change": [["gain", 0, 1, 4]],
      "story": "Gain 2 doubles. What does y₂ do?",
      "lesson": "A gain stretches away from the bias, to both sides: x̂₂ is negative, so y₂ falls."
    },
    {
      "id": "alike", "title": "All of dy higher", "start": "e2", "watch": ["dx", 0, 0],
      "shows": ["x", "gain", "dy", "x_hat", "dx_hat", "shift", "along", "rstd", "dx"],
      "change": [["dy", 0, 0, 2], ["dy", 0, 1, 1], ["dy", 0, 2, 1]],
      "story": "x is e₂ + z₂, the vector of ‘is’ after attention. Every entry of dy rises by 1. What does dx₁ do?",
      "lesson": "All gains are 1, so dx̂ rises by 1 everywhere, and so does its mean, which is subtracted. This is one of the two directions that the gradient loses."
    }
  ]
};
