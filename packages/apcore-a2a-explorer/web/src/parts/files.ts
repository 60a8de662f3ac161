import type { Part } from "../protocol/types";

/** Decode base64 or base64url; null if it is neither. */
export function bytesOf(base64: string): Uint8Array<ArrayBuffer> | null {
  try {
    const binary = atob(base64.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
    return bytes;
  } catch {
    return null;
  }
}

export async function toBase64(file: Blob): Promise<string> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/i;

/** Whether the part can be shown by <img>, in which SVGs run no scripts. */
export const isImage = (part: Part) => part.raw !== undefined && IMAGES.test(part.mediaType ?? "");

const SOUNDS = /^audio\/(mpeg|mp3|mp4|aac|ogg|opus|webm|flac|wav|x-wav)$/i;

export const isAudio = (part: Part) => part.raw !== undefined && SOUNDS.test(part.mediaType ?? "");

export function formatSize(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** The part's file name without path or control characters. */
export const fileName = (part: Part, fallback: string) =>
  (part.filename ?? "").split(/[/\\]/).pop()?.replace(/[\u0000-\u001f\u202a-\u202e\u2066-\u2069]/g, "") || fallback;

export function download(content: BlobPart, name: string, type = "application/octet-stream"): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
