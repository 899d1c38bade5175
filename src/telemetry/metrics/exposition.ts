import type { Registry } from 'prom-client'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { type Format, headOf, introOf, numeral } from './format.ts'
import { SeriesSet, Histogram, type News } from './instruments.ts'

/** Time before writing yields to other work, in milliseconds. Indivisible work, for example sending, comes on top. */
const TURN_MS = 4

/** Characters written between two looks at the clock: a fraction of a millisecond. */
const CHUNK = 32_768

/**
 * A new series begins with 0 only when the last scrape, or the start, was at most this long ago, in milliseconds. After
 * five minutes without a scrape Prometheus treats series as stale, and old counts would look like a sudden increase.
 */
const NEWS_MS: Millis = 300_000

/** Growth over the last text before the buffer has to move, in bytes. */
const ROOM = 8 * CHUNK

interface Written {
  readonly at: Millis
  readonly text: Promise<Buffer>
}

interface ExpositionParts {
  readonly registries: readonly Registry[]
  readonly clock: Clock
  /** How long a text is served again, in milliseconds: more frequent scrapers get the same text. */
  readonly maxAgeMs: () => Millis
  /** Reads states, as opposed to events, into gauges. Called before every writing. */
  readonly prepare: () => void
  /** Called when a writing is over. */
  readonly written?: () => void
}

/** Writes metrics for Prometheus: no more often per format than needed, over many turns of the event loop. */
export class Exposition {
  readonly #parts: ExpositionParts
  /** The latest text, by format and by whether a scraper asked. */
  readonly #latest = new Map<string, Written>()
  /** When a scraper asked last, or when the gateway started. */
  #scrapedAt: Millis
  /** About the size of the last text, in bytes. */
  #expected = ROOM

  constructor(parts: ExpositionParts) {
    this.#parts = parts
    this.#scrapedAt = parts.clock.now()
  }

  /**
   * Returns UTF-8 text, current or up to `maxAgeMs` old. `isScrape`: a scraper asks, and reads new series as 0 first.
   */
  write(format: Format, isScrape = false): Promise<Buffer> {
    const now = this.#parts.clock.now()
    const key = `${format} ${isScrape}`
    const latest = this.#latest.get(key)
    if (latest !== undefined && now - latest.at < this.#parts.maxAgeMs()) return latest.text
    const text = this.#write(format, isScrape ? this.#newsAt(now) : undefined)
    this.#latest.set(key, { at: now, text })
    text.catch(() => this.#latest.delete(key))
    return text
  }

  #newsAt(now: Millis): News {
    const isRecent = now - this.#scrapedAt <= NEWS_MS
    this.#scrapedAt = now
    return isRecent ? 'as_zero' : 'as_is'
  }

  async #write(format: Format, news: News | undefined): Promise<Buffer> {
    const { registries, clock, prepare, written } = this.#parts
    let since = clock.now()
    prepare()
    const page = new Page(this.#expected)
    let chunk = ''
    for (const registry of registries)
      for await (const lines of familiesOf(registry, format, news))
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

/** Most UTF-8 bytes for a unit of a string. */
const MOST_BYTES = 3

/** A growing text, encoded in pieces: encoding megabytes at once would stall, and joining buffers would make a copy. */
export class Page {
  #bytes: Buffer
  #length = 0

  constructor(expected: number) {
    this.#bytes = Buffer.allocUnsafe(expected)
  }

  add(text: string): void {
    const needed = this.#length + text.length * MOST_BYTES
    if (needed > this.#bytes.length) this.#bytes = Buffer.concat([this.#bytes], 2 * needed)
    this.#length += this.#bytes.write(text, this.#length)
  }

  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length)
  }
}

/** A prom-client metric and its series, as returned by `get()`. */
interface Family {
  readonly name: string
  readonly help: string
  readonly type: unknown
  readonly values: readonly {
    readonly metricName?: string
    readonly labels: Readonly<Record<string, string | number | undefined>>
    readonly value: number
  }[]
}

/**
 * Writes all metrics of a registry in turn, a line or a few at a time. Does not use prom-client's text: with thousands
 * of series it stalls everything, and after writing OpenMetrics once, its counters are renamed for the other format
 * too.
 */
export async function* familiesOf(
  registry: Registry,
  format: Format,
  news?: News,
): AsyncGenerator<Iterable<string>> {
  for (const { name } of registry.getMetricsAsArray()) {
    const metric: unknown = registry.getSingleMetric(name)
    if (metric instanceof SeriesSet || metric instanceof Histogram) {
      yield [introOf(name, metric.help, metric.type, format)]
      yield metric instanceof Histogram ? metric.written(format, news) : metric.written(news)
    } else {
      const family = await (metric as { get(): Promise<Family> }).get()
      yield [introOf(name, family.help, String(family.type), format)]
      yield linesOf(family)
    }
  }
}

function* linesOf({ name, values }: Family): Generator<string> {
  for (const { metricName = name, labels, value } of values)
    yield `${headOf(metricName, labels)}${numeral(value)}\n`
}

/** A range of an `Accept` header, and its parameters. */
const RANGE = /^\s*([^;\s]+)\s*(?:;(.*))?$/

/** Returns the format for `Accept`. OpenMetrics must be named and wanted no less than text; a wildcard means text. */
export function formatFor(accept: string | undefined): Format {
  let openmetrics = 0
  let text = 0
  for (const part of (accept ?? '').slice(0, 1_024).split(',')) {
    const [, type = '', parameters = ''] = RANGE.exec(part.toLowerCase()) ?? []
    const quality = qualityOf(parameters)
    if (type === 'application/openmetrics-text') openmetrics = Math.max(openmetrics, quality)
    if (type === 'text/plain') text = Math.max(text, quality)
  }
  return openmetrics > 0 && openmetrics >= text ? 'openmetrics' : 'text'
}

function qualityOf(parameters: string): number {
  const [, digits] = /(?:^|;)\s*q=([^;]*)/.exec(parameters) ?? []
  const quality = digits === undefined ? 1 : Number(digits)
  return Number.isNaN(quality) ? 0 : Math.min(quality, 1)
}
