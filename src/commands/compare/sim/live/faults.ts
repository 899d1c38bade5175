/** The name of a server of the demo, as plans and metrics know it. */
const DOCS = 'docs'
const ORDERS = 'orders'

/** Faults of servers on a bad day: each fault hits now and then, no fault hits always. */
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
  // The order is placed, and its answer is lost: nobody may send it again.
  {
    name: 'lost-answers',
    type: 'conn.reset',
    rate: 0.1,
    match: { server: ORDERS, tool: 'place_order' },
    at: 'headers',
    allowWrites: true,
  },
  // A schema tells: a number comes as a text.
  {
    name: 'stock-as-text',
    type: 'result.drift',
    rate: 0.15,
    match: { server: ORDERS, tool: 'check_stock' },
    operators: [{ op: 'type', path: '/inStock' }],
  },
  // No schema tells: it is a number, and a hundred times too large.
  {
    name: 'price-in-cents',
    type: 'result.drift',
    rate: 0.05,
    match: { server: ORDERS, tool: 'quote_price' },
    operators: [{ op: 'unit', path: '/total', factor: 100 }],
  },
] as const

/** One server is away altogether, and the process of the other one ends. */
const outage = [
  { name: 'orders-down', type: 'conn.refused', rate: 1, match: { server: ORDERS }, allowWrites: true },
  // Not at a ping of the gateway's own: it is to be a call of an agent.
  {
    name: 'docs-crash',
    type: 'proc.kill',
    rate: 1,
    match: { server: DOCS, method: 'tools/call' },
    maxInjections: 1,
  },
] as const

export interface Act {
  /** Begins its line of the table. */
  readonly name: string
  /** Title in an operator's words. */
  readonly title: string
  /** The faults of its plan, without `ttl`; none: whatever was armed is killed before it. */
  readonly faults: readonly { readonly name: string }[]
  /** How long it lasts, as a share of the whole. */
  readonly share: number
}

/** The acts of the demo, in order. Faults that stay in the plan go on counting. */
export const acts: readonly Act[] = [
  { name: 'before', title: 'no faults', faults: [], share: 0.25 },
  { name: 'during', title: 'errors, delays, lost and wrong answers', faults: noise, share: 0.3 },
  {
    name: 'outage',
    title: 'the same, orders down, docs killed once',
    faults: [...noise, ...outage],
    share: 0.2,
  },
  { name: 'after', title: 'faults killed', faults: [], share: 0.25 },
]
