"use strict";
// Long work continues by itself, a page at a time. Without this script the button does the same.
document.querySelectorAll("form[data-pubsub-continue]").forEach((form) => form.requestSubmit());
