/** Runs in the audio thread: sound as 16-bit mono chunks of 20 ms. */

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.chunk = new Int16Array(Math.round(sampleRate / 50));
    this.filled = 0;
    this.port.onmessage = () => {
      // The last word is in what is not a whole chunk yet.
      this.port.postMessage(this.chunk.slice(0, this.filled));
      this.port.postMessage(null);
      this.isOver = true;
    };
  }

  process([channels]) {
    if (this.isOver) return false;
    if (channels === undefined || channels.length === 0) return true;
    for (let at = 0; at < channels[0].length; at += 1) {
      let sum = 0;
      for (const channel of channels) sum += channel[at];
      const sample = Math.max(-1, Math.min(1, sum / channels.length));
      this.chunk[this.filled] = Math.round(sample * 32767);
      this.filled += 1;
      if (this.filled === this.chunk.length) {
        this.port.postMessage(this.chunk.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
