import type { Registry } from 'prom-client'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Spread } from './spread.ts'
import { linesOf, type Family, type Format } from './writer.ts'

/** After how many lines others get a turn: so many take a millisecond or two. */
const LINES_PER_TURN = 1_000

interface Written {
  readonly at: Millis
  readonly text: Promise<string>
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

  constructor(parts: ExpositionParts) {
    this.#parts = parts
  }

  /** The text as of now, or of up to `maxAgeMs` ago. */
  write(format: Format): Promise<string> {
    const now = this.#parts.clock.now()
    const latest = this.#latest[format]
    if (latest !== undefined && now - latest.at < this.#parts.maxAgeMs()) return latest.text
    const text = this.#write(format)
    this.#latest[format] = { at: now, text }
    text.catch(() => delete this.#latest[format])
    return text
  }

  async #write(format: Format): Promise<string> {
    const { registries, clock, prepare, written } = this.#parts
    prepare()
    const lines: string[] = []
    let due = LINES_PER_TURN
    for (const registry of registries)
      for (const { name } of registry.getMetricsAsArray()) {
        for (const line of linesOf(await familyOf(registry, name), format)) {
          lines.push(line)
          if (lines.length < due) continue
          due = lines.length + LINES_PER_TURN
          await new Promise<void>((resolve) => clock.after(0, resolve))
        }
      }
    if (format === 'openmetrics') lines.push('# EOF\n')
    written?.()
    return lines.join('')
  }
}

async function familyOf(registry: Registry, name: string): Promise<Family> {
  const metric: unknown = registry.getSingleMetric(name)
  if (!(metric instanceof Spread)) return (metric as { get(): Promise<Family> }).get()
  return { name, help: metric.help, type: metric.type, values: metric.lines() }
}
