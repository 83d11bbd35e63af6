// Only comforts: the page does everything without a script.
"use strict";

const form = document.querySelector("form");
const text = document.getElementById("text");

text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit();
  }
});

document.querySelector(".keys").hidden = false;
