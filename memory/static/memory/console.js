// Keys of the console's field: Ctrl+Enter runs, Tab indents. After Escape, Tab moves on as anywhere
// else, so that nobody is caught in the field. Without this script the field is an ordinary one.
// A page of work that goes on loads itself again, unless somebody has begun to type on it.
"use strict";

for (const field of document.querySelectorAll("textarea[data-console]")) {
    let leaves = false;

    const insert = (text) => {
        // The only way that the browser's undo takes back.
        if (!document.execCommand("insertText", false, text)) {
            field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
        }
    };

    field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            field.form.requestSubmit();
        } else if (event.key === "Escape") {
            leaves = true;
        } else if (event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey) {
            if (!leaves) {
                event.preventDefault();
                insert("    ");
            }
            leaves = false;
        } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            const line = field.value.slice(0, field.selectionStart).split("\n").pop();
            const indent = line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : "");
            if (indent) {
                event.preventDefault();
                insert("\n" + indent);
            }
            leaves = false;
        } else if (event.key !== "Shift") {
            leaves = false;
        }
    });
    field.addEventListener("blur", () => { leaves = false; });
}

for (const note of document.querySelectorAll("[data-again]")) {
    const again = setTimeout(() => location.replace(note.dataset.address), note.dataset.again * 1000);
    document.addEventListener("input", () => {
        clearTimeout(again);
        note.textContent = "reload this page to see whether it is.";
    }, { once: true });
}
