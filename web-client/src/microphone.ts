/** The microphone of this device: off, or recording into the room. */

import type { ErrorCode, StreamClosed, StreamCredit, StreamOpened } from "./protocol/types.gen";
import { Recording } from "./recording";
import type { Line } from "./upload";

export interface MicrophoneNews {
  microphoneChanged(): void;
  microphoneFailed(message: string, code: ErrorCode | null): void;
}

export class Microphone {
  private recording: Recording | null = null;
  private stopDevice: (() => void) | null = null;
  private isStarting = false;
  private isLive = false;

  constructor(
    private readonly line: Line,
    private readonly news: MicrophoneNews,
  ) {}

  get isOn(): boolean {
    return this.isStarting || this.stopDevice !== null;
  }

  /** What was recorded and is not stored yet. */
  get isUnderWay(): boolean {
    return this.isOn || this.recording !== null;
  }

  async start(name: string, asks: boolean): Promise<void> {
    if (this.isUnderWay) return;
    this.isStarting = true;
    this.news.microphoneChanged();
    try {
      await this.open(name, asks);
    } catch (error) {
      const isRefused = error instanceof DOMException && error.name === "NotAllowedError";
      const text = isRefused
        ? "The browser does not allow the microphone here."
        : "No microphone can be used here.";
      this.news.microphoneFailed(text, null);
    } finally {
      this.isStarting = false;
      this.news.microphoneChanged();
    }
  }

  stop(): void {
    this.stopDevice?.();
    this.stopDevice = null;
    this.news.microphoneChanged();
  }

  connected(): void {
    this.isLive = true;
    this.recording?.connected();
  }

  disconnected(): void {
    this.isLive = false;
    this.recording?.disconnected();
  }

  receive(message: StreamOpened | StreamCredit | StreamClosed): boolean {
    return this.recording?.receive(message) ?? false;
  }

  private async open(name: string, asks: boolean): Promise<void> {
    // There is none where the page came over plain HTTP from another machine.
    if (!navigator.mediaDevices) throw new Error("no media devices");
    const audio = { channelCount: 1, echoCancellation: true, noiseSuppression: true };
    const device = await navigator.mediaDevices.getUserMedia({ audio });
    const context = new AudioContext();
    try {
      await context.audioWorklet.addModule("/capture.js");
    } catch (error) {
      for (const track of device.getTracks()) track.stop();
      void context.close();
      throw error;
    }
    const capture = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    // The rate that it has, not one that was asked for: some browsers pass over the wish.
    const recording = new Recording(
      this.line,
      { recordingEnded: (code, message) => this.ended(code, message) },
      context.sampleRate,
      name,
      asks,
    );
    capture.port.onmessage = ({ data }: MessageEvent<Int16Array<ArrayBuffer> | null>) => {
      if (data !== null) recording.take(data);
      else {
        recording.end();
        void context.close();
      }
    };
    const source = context.createMediaStreamSource(device);
    source.connect(capture);
    this.recording = recording;
    this.stopDevice = () => {
      capture.port.postMessage("stop");
      source.disconnect();
      for (const track of device.getTracks()) track.stop();
    };
    if (this.isLive) recording.connected();
  }

  private ended(code: ErrorCode | null, message: string): void {
    this.recording = null;
    this.stop();
    if (code !== null) this.news.microphoneFailed(message, code);
  }
}
