import type { Registry } from 'prom-client'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { type Format, headOf, introOf, numeral } from './format.ts'
import { SeriesSet, Histogram, type News } from './instruments.ts'

/**
 * Longest time of writing in one turn of the event loop, in milliseconds. Indivisible work, such as sending, takes
 * additional time.
 */
const TURN_MS = 4

/** Characters written between two checks of the clock; they take a fraction of a millisecond. */
const CHUNK = 32_768

/**
 * Longest time since the last scrape, or since the start, in milliseconds, for which a new series is first shown as 0.
 * After five minutes without a scrape, Prometheus treats series as stale, and old counts would look like a sudden
 * increase.
 */
const NEWS_MS: Millis = 300_000

/** Spare bytes of the buffer beyond the size of the last text; a longer text needs a larger buffer. */
const ROOM = 8 * CHUNK

interface Written {
  readonly at: Millis
  readonly text: Promise<Buffer>
}

interface ExpositionParts {
  readonly registries: readonly Registry[]
  readonly clock: Clock
  /** Returns how long a text is reused, in milliseconds. More frequent scrapes get the same text. */
  readonly maxAgeMs: () => Millis
  /** Sets the gauges to the current states. Called before each writing. */
  readonly prepare: () => void
  /** Called after each writing. */
  readonly written?: () => void
}

/** Writes metrics for Prometheus over many turns of the event loop. Writes each format at most once per `maxAgeMs`. */
export class Exposition {
  readonly #parts: ExpositionParts
  /** The latest text for each format, separately for scrapers and for other clients. */
  readonly #latest = new Map<string, Written>()
  /** Time of the last scrape, or of the gateway's start. */
  #scrapedAt: Millis
  /** Expected size of the next text, in bytes: about the size of the last text. */
  #expected = ROOM

  constructor(parts: ExpositionParts) {
    this.#parts = parts
    this.#scrapedAt = parts.clock.now()
  }

  /**
   * Resolves to UTF-8 text that is at most `maxAgeMs` old. `isScrape`: true for a scraper, which gets new series as 0
   * first.
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

/** Most UTF-8 bytes of one UTF-16 code unit. */
const MOST_BYTES = 3

/**
 * A growing UTF-8 text, encoded piece by piece. Encoding megabytes at once would block the event loop, and joining
 * buffers would copy them.
 */
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
 * Yields the text of all metrics of a registry, a few lines at a time. Does not use prom-client's own text, which
 * blocks the event loop with thousands of series. After writing OpenMetrics once, prom-client also uses OpenMetrics'
 * counter names in the other format.
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

/**
 * Returns the format for an `Accept` header: OpenMetrics if named with at least the weight of text, else text. A
 * wildcard counts as text.
 */
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
