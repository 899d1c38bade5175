import type { Registry } from 'prom-client'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Format } from './format.ts'
import { Page } from './page.ts'
import { familiesOf } from './writer.ts'

/** After how long others get a turn. What cannot be divided, such as sending, comes on top. */
const TURN_MS = 4

/** How much is written between two looks at the clock, in characters: a fraction of a millisecond. */
const CHUNK = 32_768

/** What a text may be longer than the last one before it has to be moved, in bytes. */
const ROOM = 8 * CHUNK

interface Written {
  readonly at: Millis
  readonly text: Promise<Buffer>
}

export interface ExpositionParts {
  readonly registries: readonly Registry[]
  readonly clock: Clock
  /** How long a text is given out again, in milliseconds: whoever scrapes harder gets the same. */
  readonly maxAgeMs: () => Millis
  /** Reads into gauges what is a state rather than an event. Called before every writing. */
  readonly prepare: () => void
  /** Called when a writing is over. */
  readonly written?: () => void
}

/** Writes metrics down for Prometheus: not more often in each format than it has to, in many turns of the event loop. */
export class Exposition {
  readonly #parts: ExpositionParts
  readonly #latest: Partial<Record<Format, Written>> = {}
  /** About as many bytes as the last time. */
  #expected = ROOM

  constructor(parts: ExpositionParts) {
    this.#parts = parts
  }

  /** The text, in UTF-8, as of now, or of up to `maxAgeMs` ago. */
  write(format: Format): Promise<Buffer> {
    const now = this.#parts.clock.now()
    const latest = this.#latest[format]
    if (latest !== undefined && now - latest.at < this.#parts.maxAgeMs()) return latest.text
    const text = this.#write(format)
    this.#latest[format] = { at: now, text }
    text.catch(() => delete this.#latest[format])
    return text
  }

  async #write(format: Format): Promise<Buffer> {
    const { registries, clock, prepare, written } = this.#parts
    let since = clock.now()
    prepare()
    const page = new Page(this.#expected)
    let chunk = ''
    for (const registry of registries)
      for await (const lines of familiesOf(registry, format))
        for (const line of lines) {
          chunk += line
          if (chunk.length < CHUNK) continue
          page.add(chunk)
          chunk = ''
          if (clock.now() - since < TURN_MS) continue
          await new Promise<void>((resolve) => clock.after(0, resolve))
          since = clock.now()
        }
    if (format === 'openmetrics') chunk += '# EOF\n'
    page.add(chunk)
    written?.()
    this.#expected = page.bytes.length + ROOM
    return page.bytes
  }
}
