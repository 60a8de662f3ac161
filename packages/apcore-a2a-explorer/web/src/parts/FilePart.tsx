import { useEffect, useMemo, useState } from "preact/hooks";
import type { Part } from "../protocol/types";
import { bytesOf, download, fileName, formatSize, isAudio, isImage } from "./files";
import { Link } from "./Link";

export function FilePart({ part }: { part: Part }) {
  const name = fileName(part, "file");
  if (part.raw === undefined) {
    return (
      <p class="file">
        <span class="muted">External file, not loaded: </span>
        <Link url={part.url} />
      </p>
    );
  }
  return <Bytes part={part} name={name} />;
}

function Bytes({ part, name }: { part: Part; name: string }) {
  const bytes = useMemo(() => bytesOf(part.raw ?? ""), [part.raw]);
  if (!bytes) return <p class="file">{name} can't be displayed: its content is not valid base64.</p>;
  const type = part.mediaType ?? "application/octet-stream";
  return (
    <div class="file">
      {isImage(part) && <Image bytes={bytes} type={type} name={name} />}
      {isAudio(part) && <Audio bytes={bytes} type={type} name={name} />}
      <p>
        <span class="breakable">{name}</span>{" "}
        <span class="muted">
          {type}, {formatSize(bytes.length)}
        </span>{" "}
        <button
          type="button"
          class="quiet small"
          aria-label={`Download ${name}`}
          onClick={() => download(bytes, name)}
        >
          Download
        </button>
      </p>
    </div>
  );
}

interface MediaProps {
  bytes: Uint8Array<ArrayBuffer>;
  type: string;
  name: string;
}

function Image({ bytes, type, name }: MediaProps) {
  const url = useBlobUrl(bytes, type);
  return <div class="picture">{url && <img src={url} alt={name} />}</div>;
}

function Audio({ bytes, type, name }: MediaProps) {
  const url = useBlobUrl(bytes, type);
  return <div class="sound">{url && <audio controls src={url} aria-label={name} />}</div>;
}

/** A blob URL for *bytes*, revoked when they are no longer shown; "" at first. */
function useBlobUrl(bytes: Uint8Array<ArrayBuffer>, type: string): string {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const blobUrl = URL.createObjectURL(new Blob([bytes], { type }));
    setUrl(blobUrl);
    return () => URL.revokeObjectURL(blobUrl);
  }, [bytes, type]);
  return url;
}
