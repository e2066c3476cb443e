/** The camera of this device: off, or showing the room one still after the other. */

import type { ErrorCode, StreamClosed, StreamCredit, StreamOpened } from "./protocol/types.gen";
import { Stills } from "./stills";
import { byId, setAttributes, setText } from "./view/dom";
import type { Line } from "./upload";

/** Five a second: the server looks at the newest, which is then at most this old. */
const INTERVAL_MS = 200;
const LONGER_SIDE_PX = 1280;
const JPEG_QUALITY = 0.8;

export interface CameraNews {
  /** What the others see it called. */
  cameraName(): string;
  cameraFailed(message: string, code: ErrorCode | null): void;
  /** The asset that the camera's stills belong to is known. */
  cameraNamed(asset: string): void;
}

export class Camera {
  private stills: Stills | null = null;
  private device: MediaStream | null = null;
  private timer: number | null = null;
  private isStarting = false;
  private isLive = false;
  private isEncoding = false;
  private isNamed = false;
  private readonly preview = byId("camera-preview", HTMLVideoElement);
  private readonly button = byId("camera", HTMLButtonElement);
  private readonly label = byId("camera-text", HTMLElement);
  private readonly canvas = document.createElement("canvas");

  constructor(
    private readonly line: Line,
    private readonly news: CameraNews,
  ) {
    this.button.addEventListener("click", () => {
      if (this.isOn) this.stop();
      else void this.start();
    });
  }

  private get isOn(): boolean {
    return this.isStarting || this.device !== null;
  }

  private async start(): Promise<void> {
    if (this.stills !== null) return;
    this.isStarting = true;
    this.render();
    try {
      await this.open();
    } catch (error) {
      const isRefused = error instanceof DOMException && error.name === "NotAllowedError";
      const text = isRefused
        ? "The browser does not allow the camera here."
        : "No camera can be used here.";
      this.news.cameraFailed(text, null);
    } finally {
      this.isStarting = false;
      this.render();
    }
  }

  private render(): void {
    setAttributes(this.button, { "aria-pressed": String(this.isOn) });
    setText(this.label, this.isOn ? "Stop camera" : "Camera");
  }

  private stop(): void {
    if (this.timer !== null) window.clearInterval(this.timer);
    this.timer = null;
    for (const track of this.device?.getTracks() ?? []) track.stop();
    this.device = null;
    this.preview.srcObject = null;
    this.preview.hidden = true;
    this.stills?.end();
    this.render();
  }

  connected(): void {
    this.isLive = true;
    this.stills?.connected();
  }

  disconnected(): void {
    this.isLive = false;
    this.stills?.disconnected();
  }

  receive(message: StreamOpened | StreamCredit | StreamClosed): boolean {
    const isMine = this.stills?.receive(message) ?? false;
    const asset = this.stills?.asset ?? null;
    if (asset !== null && !this.isNamed) {
      this.isNamed = true;
      this.news.cameraNamed(asset);
    }
    return isMine;
  }

  private async open(): Promise<void> {
    // There is none where the page came over plain HTTP from another machine.
    if (!navigator.mediaDevices) throw new Error("no media devices");
    const video = { width: { ideal: LONGER_SIDE_PX }, facingMode: { ideal: "environment" } };
    const device = await navigator.mediaDevices.getUserMedia({ video });
    for (const track of device.getTracks()) {
      // Unplugged, or taken away in the browser's own settings.
      track.addEventListener("ended", () => this.stop());
    }
    this.device = device;
    this.isNamed = false;
    this.stills = new Stills(
      this.line,
      { stillsEnded: (code, message) => this.ended(code, message) },
      this.news.cameraName(),
    );
    this.preview.srcObject = device;
    this.preview.hidden = false;
    await this.preview.play();
    this.timer = window.setInterval(() => this.shoot(), INTERVAL_MS);
    if (this.isLive) this.stills.connected();
  }

  private shoot(): void {
    const { videoWidth, videoHeight } = this.preview;
    if (this.isEncoding || videoWidth === 0) return;
    this.isEncoding = true;
    const scale = Math.min(1, LONGER_SIDE_PX / Math.max(videoWidth, videoHeight));
    this.canvas.width = Math.round(videoWidth * scale);
    this.canvas.height = Math.round(videoHeight * scale);
    const context = this.canvas.getContext("2d")!;
    context.drawImage(this.preview, 0, 0, this.canvas.width, this.canvas.height);
    // A clock that never goes back, whatever the device's own time is set to.
    const taken = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000));
    this.canvas.toBlob((blob) => void this.shot(blob, taken), "image/jpeg", JPEG_QUALITY);
  }

  private async shot(blob: Blob | null, taken: bigint): Promise<void> {
    this.isEncoding = false;
    if (blob !== null) this.stills?.take(new Uint8Array(await blob.arrayBuffer()), taken);
  }

  private ended(code: ErrorCode | null, message: string): void {
    this.stills = null;
    this.stop();
    if (code !== null) this.news.cameraFailed(message, code);
  }
}
