"use strict";
// Light or dark: as the system has it, until the reader chooses.
const root = document.documentElement;
const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const button = document.querySelector("button");
const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
button.hidden = false;
button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
label();
// What a pointer or a finger is at, in words below the figure.
for (const figure of document.querySelectorAll("figure")) {
  const readout = figure.querySelector(".readout");
  const show = (event) => {
    const title = event.target instanceof Element && event.target.querySelector(":scope > title");
    if (readout && title && !(event.target instanceof SVGSVGElement)) readout.textContent = title.textContent;
  };
  figure.addEventListener("pointerover", show);
  figure.addEventListener("pointerdown", show);
}
