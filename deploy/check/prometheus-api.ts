import { until } from '../../test/support/until.ts'

export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  /** `[seconds, value]` of an instant, or of each step of a range. */
  readonly value?: readonly [number, string]
  readonly values?: readonly (readonly [number, string])[]
}

/** Start, end and step, in seconds. */
export interface Span {
  readonly start: number
  readonly end: number
  readonly step: number
}

export interface RuleHealth {
  readonly name: string
  readonly health: 'ok' | 'unknown' | 'err'
  readonly lastError?: string
  /** Time of the last evaluation, in RFC 3339. */
  readonly lastEvaluation: string
}

/** Queries to a Prometheus. Times are in seconds since the Unix epoch. */
export class PrometheusApi {
  readonly url: string

  constructor(url: string) {
    this.url = url
  }

  /** Returns the value of an expression now, or at a time. */
  async instant(expr: string, time?: number): Promise<Sample[]> {
    const parameters = { query: expr, ...(time !== undefined && { time: String(time) }) }
    return (await this.#get<{ result: Sample[] }>('query', parameters)).result
  }

  /** Returns the values of an expression over the last seconds. */
  range(expr: string, seconds: number): Promise<Sample[]> {
    return this.between(expr, { ...lately(seconds), step: 1 })
  }

  /** Returns the values of an expression at each step of a span; all in seconds. */
  async between(expr: string, { start, end, step }: Span): Promise<Sample[]> {
    const span = { start: String(start), end: String(end), step: String(step) }
    return (await this.#get<{ result: Sample[] }>('query_range', { query: expr, ...span })).result
  }

  labelValues(label: string, series: string): Promise<string[]> {
    return this.#get(`label/${label}/values`, { 'match[]': series })
  }

  /** Returns labels of the exemplars of series in the last seconds. */
  async exemplars(series: string, seconds: number): Promise<Sample['metric'][]> {
    type Found = { exemplars: { labels: Sample['metric'] }[] }
    const { start, end } = lately(seconds)
    const span = { start: String(start), end: String(end) }
    const found = await this.#get<Found[]>('query_exemplars', { query: series, ...span })
    return found.flatMap(({ exemplars }) => exemplars.map(({ labels }) => labels))
  }

  async rules(): Promise<RuleHealth[]> {
    const { groups } = await this.#get<{ groups: { rules: RuleHealth[] }[] }>('rules', {})
    return groups.flatMap(({ rules }) => rules)
  }

  /** Resolves at the first scrape that begins after a time, with its start. */
  async scrapedAfter(time: number): Promise<number> {
    let scraped = 0
    await until('Prometheus scrapes the gateway', async () => {
      const [sample] = await this.instant('timestamp(up == 1)')
      scraped = Number(sample?.value?.[1] ?? 0)
      return scraped > time
    })
    return scraped
  }

  /** Resolves when every rule has seen a scrape that began after a time; `intervalS` is the evaluation interval. */
  async evaluatedAfter(time: number, intervalS: number): Promise<void> {
    // An evaluation may read data up to one interval old.
    const due = (await this.scrapedAfter(time)) + intervalS
    await until('all rules are evaluated', async () =>
      (await this.rules()).every(({ lastEvaluation }) => Date.parse(lastEvaluation) / 1_000 > due),
    )
  }

  async #get<Data>(path: string, parameters: Readonly<Record<string, string>>): Promise<Data> {
    const query = new URLSearchParams(parameters)
    const response = await fetch(`${this.url}/api/v1/${path}?${query.toString()}`)
    const answer = (await response.json()) as { status: string; data: Data; error?: string }
    if (answer.status !== 'success') throw new Error(answer.error ?? `HTTP ${response.status}`)
    return answer.data
  }
}

function lately(seconds: number) {
  const end = Date.now() / 1_000
  return { start: end - seconds, end }
}
