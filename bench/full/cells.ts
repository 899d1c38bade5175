/** The matrix of loads for the rows. The base cell differs from each other cell in one value. */
export interface Cell {
  /** Argument of `--cell`. */
  readonly name: string
  readonly title: string
  readonly era: 'legacy' | 'modern'
  readonly reply: 'json' | 'sse'
  /** Bytes that the server appends to the text of every result. */
  readonly fill: number
  /** Sessions with one call under way at a time, 1 to 1000. */
  readonly sessions: number
  readonly upstream: 'http' | 'stdio'
  /** Rows of the cell: every way, the usual ways, or one for each policy. */
  readonly rows: 'all' | 'usual' | 'policies'
  readonly peers: boolean
  /** True: latencies at a pace are measured. */
  readonly paced: boolean
  /** Share of the time, relative to another cell with as many rows. */
  readonly weight: number
  /** True: a quick run includes the cell. */
  readonly quick: boolean
}

const base: Cell = {
  name: 'base',
  title: 'Base: legacy era, JSON, 0.2 KB, 16 sessions, server over HTTP',
  era: 'legacy',
  reply: 'json',
  // The result is 0.2 KB with its envelope.
  fill: 120,
  sessions: 16,
  upstream: 'http',
  rows: 'all',
  peers: true,
  paced: true,
  weight: 1.5,
  quick: true,
}

const usual: Cell = { ...base, rows: 'usual', weight: 1, quick: false }

export const cells: readonly Cell[] = [
  base,
  { ...usual, name: 'modern', title: 'Modern era, agents and server', era: 'modern', peers: false },
  { ...usual, name: 'sse', title: 'Replies as event streams', reply: 'sse' },
  { ...usual, name: '10kb', title: '10 KB', fill: 10_000 },
  { ...usual, name: '200kb', title: '200 KB', fill: 200_000 },
  { ...usual, name: 'sessions-1', title: '1 session', sessions: 1 },
  { ...usual, name: 'sessions-128', title: '128 sessions', sessions: 128, peers: false },
  { ...usual, name: 'sessions-1000', title: '1,000 sessions', sessions: 1_000, peers: false },
  { ...usual, name: 'stdio', title: 'Server over stdio', upstream: 'stdio', quick: true },
  {
    ...base,
    name: 'policies',
    title: 'One policy at a time',
    rows: 'policies',
    peers: false,
    paced: false,
    // A policy costs little, so the difference needs many rounds.
    weight: 3,
  },
]
