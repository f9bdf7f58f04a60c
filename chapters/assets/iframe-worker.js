/* Search without a server: browsers refuse to start a Worker from file://,
   so there a hidden iframe stands in for it. Elsewhere this does nothing. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
      inside.document.open();
      inside.document.write(`<body><script>
        var postMessage = (data) => parent.postMessage(data, "*");
        var importScripts = (...urls) => urls.reduce((last, url) =>
          last.then(() => new Promise((done) => {
            const script = document.createElement("script");
            script.src = url;
            script.onload = done;
            document.body.appendChild(script);
          })), Promise.resolve());
        <\/script><script src="${url}"><\/script></body>`);
      inside.document.close();
      this.ready = new Promise((done) => { inside.onload = done; });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(
        new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
