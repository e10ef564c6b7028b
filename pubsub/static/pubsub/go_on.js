"use strict";
// Long work goes on by itself, a page at a time. Without this script the button does the same.
document.querySelectorAll("form[data-pubsub-go-on]").forEach((form) => form.requestSubmit());
