/** Name of a demo server in plans and metrics. */
const DOCS = 'docs'
const ORDERS = 'orders'

/** Faults of servers on a bad day: each fault hits only a share of the calls. */
const noise = [
  {
    name: 'slow-search',
    type: 'conn.latency',
    rate: 0.15,
    match: { server: DOCS, tool: 'search_docs' },
    distribution: { kind: 'lognormal', median: '300ms', p99: '3s', cap: '5s' },
  },
  {
    name: 'read-errors',
    type: 'rpc.error',
    rate: 0.2,
    match: { server: DOCS, tool: 'read_doc' },
    code: -32603,
    message: 'the index is being rebuilt',
  },
  { name: 'orders-503', type: 'http.status', rate: 0.1, match: { server: ORDERS }, status: 503 },
  // The server places the order, but its answer is lost, so a retry would place the order twice.
  {
    name: 'lost-answers',
    type: 'conn.reset',
    rate: 0.1,
    match: { server: ORDERS, tool: 'place_order' },
    at: 'headers',
    allowWrites: true,
  },
  // The output schema detects this fault: a text replaces a number.
  {
    name: 'stock-as-text',
    type: 'result.drift',
    rate: 0.15,
    match: { server: ORDERS, tool: 'check_stock' },
    operators: [{ op: 'type', path: '/inStock' }],
  },
  // The output schema cannot detect this fault: the number is a hundred times too large.
  {
    name: 'price-in-cents',
    type: 'result.drift',
    rate: 0.05,
    match: { server: ORDERS, tool: 'quote_price' },
    operators: [{ op: 'unit', path: '/total', factor: 100 }],
  },
] as const

/** One server refuses connections, and the process of the other server is killed. */
const outage = [
  { name: 'orders-down', type: 'conn.refused', rate: 1, match: { server: ORDERS }, allowWrites: true },
  // Hits only agents' calls, not the gateway's own pings.
  {
    name: 'docs-crash',
    type: 'proc.kill',
    rate: 1,
    match: { server: DOCS, method: 'tools/call' },
    maxInjections: 1,
  },
] as const

export interface Act {
  /** First cell of the act's line in the table. */
  readonly name: string
  readonly title: string
  /** The faults of the act's plan, without `ttl`. Without faults, all armed faults are killed before the act. */
  readonly faults: readonly { readonly name: string }[]
  /** Duration as a share of the whole demo. */
  readonly share: number
}

/** The acts of the demo, in order. Faults still in the plan keep their counts. */
export const acts: readonly Act[] = [
  { name: 'before', title: 'no faults', faults: [], share: 0.25 },
  { name: 'during', title: 'errors, delays, lost and wrong answers', faults: noise, share: 0.3 },
  {
    name: 'outage',
    title: 'also orders down, docs killed once',
    faults: [...noise, ...outage],
    share: 0.2,
  },
  { name: 'after', title: 'faults killed', faults: [], share: 0.25 },
]
