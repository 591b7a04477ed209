"use strict";
// A page to play with takes the place of its picture when it says that it runs, and how high it is. Until then, and where
// it or scripts are blocked, the picture stays.

for (const box of document.querySelectorAll(".embedded[data-page]")) {
  const frame = document.createElement("iframe");
  frame.title = box.querySelector("img").alt;
  frame.src = box.dataset.page;
  addEventListener("message", ({ source, data }) => {
    if (source !== frame.contentWindow || !Number.isFinite(data?.lab)) return;
    frame.style.height = `${data.lab}px`;
    box.classList.add("runs");
  });
  box.append(frame);
}
