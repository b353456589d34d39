"use strict";
(() => {
  const data = JSON.parse(document.getElementById("views").textContent);
  const root = document.documentElement;
  const views = [];

  // The reader's choice of theme is kept where the browser lets a file keep something.
  const stored = (value) => {
    try {
      return value === undefined ? localStorage.getItem("omrl-theme") : localStorage.setItem("omrl-theme", value);
    } catch {
      return null;
    }
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = document.getElementById("theme");
  const themed = () => {
    button.textContent = dark() ? "Light" : "Dark";
    for (const view of views) view.draw();
  };
  const saved = stored();
  if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    stored(root.dataset.theme);
    themed();
  });
  system.addEventListener("change", themed);

  // Everything that belongs to a run carries its number and is shown while the run is ticked.
  for (const box of document.querySelectorAll("input[data-toggles]")) {
    const show = () => {
      for (const element of document.querySelectorAll(`[data-run="${box.dataset.toggles}"]`)) {
        element.classList.toggle("off", !box.checked);
      }
    };
    box.addEventListener("change", show);
    show(); // a reloaded page keeps its ticks
  }

  const tip = document.getElementById("tip");
  const showTip = (task, x, y) => {
    const name = document.createElement("b");
    name.textContent = task.name + (task.unseen ? "" : " (training task)");
    tip.replaceChildren(name, document.createTextNode(task.params || "no parameters"));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
  };

  // A cloud of points on a canvas: z turns in space by orthographic projection, which keeps distances true; t-SNE is flat.
  class View {
    constructor(canvas, embedding, space) {
      Object.assign(this, { canvas, embedding, space, yaw: 0.7, pitch: 0.42, zoom: 1 });
      this.cloud = space ? embedding.space : embedding.flat;
      this.width = space ? 3 : 2;
      this.count = this.cloud.points.length / this.width;
      this.near = new Float32Array(2 * this.count);
      canvas.addEventListener("pointermove", (event) => this.move(event));
      canvas.addEventListener("pointerleave", () => this.leave());
      if (space) {
        canvas.addEventListener("pointerdown", (event) => this.grab(event));
        canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
        canvas.addEventListener("keydown", (event) => this.key(event));
        canvas.addEventListener("dblclick", () => this.turn(0.7 - this.yaw, 0.42 - this.pitch, 1 / this.zoom));
      }
      new ResizeObserver(() => this.draw()).observe(canvas);
    }

    turn(yaw, pitch, zoom = 1) {
      this.yaw += yaw;
      this.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, this.pitch + pitch));
      this.zoom = Math.max(0.5, Math.min(12, this.zoom * zoom));
      this.draw();
    }

    grab(event) {
      this.canvas.setPointerCapture(event.pointerId);
      this.canvas.focus({ preventScroll: true });
      this.held = [event.clientX, event.clientY];
    }

    wheel(event) {
      if (document.activeElement !== this.canvas) return; // until it is clicked, the wheel scrolls the page
      event.preventDefault();
      this.turn(0, 0, Math.exp(-event.deltaY / 500));
    }

    key(event) {
      const by = {
        ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1],
        "+": [0, 0, 1.15], "-": [0, 0, 1 / 1.15],
      }[event.key];
      if (!by) return;
      event.preventDefault();
      this.turn(...by);
    }

    move(event) {
      if (this.held && event.buttons) {
        const [x, y] = this.held;
        this.held = [event.clientX, event.clientY];
        tip.hidden = true;
        this.turn((event.clientX - x) / 110, (event.clientY - y) / 110);
        return;
      }
      this.held = null;
      const box = this.canvas.getBoundingClientRect();
      const task = this.nearest(event.clientX - box.left, event.clientY - box.top);
      this.light(task);
      if (task < 0) tip.hidden = true;
      else showTip(this.embedding.tasks[task], event.clientX, event.clientY);
    }

    leave() {
      tip.hidden = true;
      this.light(-1);
    }

    nearest(x, y) {
      let found = -1, least = 12 * 12;
      for (let i = 0; i < this.count; i++) {
        const dx = this.near[2 * i] - x, dy = this.near[2 * i + 1] - y, gap = dx * dx + dy * dy;
        if (gap < least) [found, least] = [i, gap];
      }
      return found < 0 ? -1 : Math.floor(found / this.embedding.draws);
    }

    light(task) {
      if (this.embedding.lit === task) return;
      this.embedding.lit = task;
      for (const view of views) if (view.embedding === this.embedding) view.draw();
    }

    project(x, y, z) {
      const right = x * Math.cos(this.yaw) - y * Math.sin(this.yaw);
      const away = x * Math.sin(this.yaw) + y * Math.cos(this.yaw);
      const up = z * Math.cos(this.pitch) - away * Math.sin(this.pitch);
      return [right, up, away * Math.cos(this.pitch) + z * Math.sin(this.pitch)];
    }

    draw() {
      const wide = this.canvas.clientWidth, high = this.canvas.clientHeight, sharp = devicePixelRatio || 1;
      if (!wide) return;
      this.canvas.width = wide * sharp;
      this.canvas.height = high * sharp;
      const pen = this.canvas.getContext("2d");
      pen.scale(sharp, sharp);
      const ink = getComputedStyle(this.canvas).color;
      const unit = ((this.space ? 0.31 * this.zoom : 0.46) * high) / this.cloud.half;
      if (this.space) this.cube(pen, wide, high, unit, ink);
      const order = new Uint32Array(this.count), depth = new Float32Array(this.count), { points } = this.cloud;
      for (let i = 0; i < this.count; i++) {
        const [x, y, z] = this.space
          ? this.project(points[3 * i], points[3 * i + 1], points[3 * i + 2])
          : [points[2 * i], points[2 * i + 1], 0];
        this.near[2 * i] = wide / 2 + x * unit;
        this.near[2 * i + 1] = high / 2 - y * unit;
        depth[i] = z;
        order[i] = i;
      }
      if (this.space) order.sort((a, b) => depth[b] - depth[a]);
      const { lit = -1, draws, colours } = this.embedding, radius = Math.max(1.6, wide / 190);
      for (const front of lit < 0 ? [false] : [false, true]) {
        for (const i of order) {
          const task = Math.floor(i / draws);
          if (lit >= 0 && (task === lit) !== front) continue;
          pen.globalAlpha = lit < 0 ? 0.8 : front ? 1 : 0.16;
          pen.fillStyle = colours[i];
          pen.beginPath();
          pen.arc(this.near[2 * i], this.near[2 * i + 1], front ? radius * 1.25 : radius, 0, 7);
          pen.fill();
        }
      }
      pen.globalAlpha = 1;
    }

    cube(pen, wide, high, unit, ink) {
      const half = this.cloud.half;
      const at = (x, y, z) => {
        const [right, up] = this.project(x * half, y * half, z * half);
        return [wide / 2 + right * unit, high / 2 - up * unit];
      };
      pen.strokeStyle = pen.fillStyle = ink;
      pen.lineWidth = 1;
      for (let axis = 0; axis < 3; axis++) {
        for (const a of [-1, 1]) for (const b of [-1, 1]) {
          const [from, to] = [-1, 1].map((end) => {
            const corner = [a, b];
            corner.splice(axis, 0, end);
            return at(...corner);
          });
          pen.globalAlpha = a < 0 && b < 0 ? 0.45 : 0.13;
          pen.beginPath();
          pen.moveTo(...from);
          pen.lineTo(...to);
          pen.stroke();
        }
      }
      pen.globalAlpha = 0.75;
      pen.font = "12px system-ui, sans-serif";
      pen.textAlign = "center";
      this.cloud.axes.forEach((name, axis) => {
        const end = [-1, -1, -1];
        end[axis] = 1.14;
        const [x, y] = at(...end);
        const room = pen.measureText(name).width / 2 + 4;
        pen.fillText(name, Math.max(room, Math.min(wide - room, x)), Math.max(12, Math.min(high - 5, y + 4)));
      });
      pen.globalAlpha = 1;
    }
  }

  for (const canvas of document.querySelectorAll("canvas[data-embedding]")) {
    views.push(new View(canvas, data.embeddings[canvas.dataset.embedding], canvas.dataset.kind === "space"));
  }
  themed();
})();
