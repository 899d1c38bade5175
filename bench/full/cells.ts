/** The matrix: what is asked of the rows. The base differs from each other cell in one thing. */
export interface Cell {
  /** What `--cell` calls it. */
  readonly name: string
  readonly title: string
  readonly era: 'legacy' | 'modern'
  readonly reply: 'json' | 'sse'
  /** Bytes that the server appends to the text of every result. */
  readonly fill: number
  /** Each with one call under way at a time, 1 to 1000. */
  readonly sessions: number
  readonly upstream: 'http' | 'stdio'
  /** Which rows: every way, the usual ones, or one for each policy. */
  readonly rows: 'all' | 'usual' | 'policies'
  /** Whether gateways of others are among them. */
  readonly peers: boolean
  /** Whether latencies at a pace are measured. */
  readonly paced: boolean
  /** Share of the time, as a multiple of that of another cell with as many rows. */
  readonly weight: number
  /** Whether it is in a quick look. */
  readonly quick: boolean
}

const base: Cell = {
  name: 'base',
  title: 'Base: legacy era, JSON, 0.2 KB, 16 sessions, server over HTTP',
  era: 'legacy',
  reply: 'json',
  // A result of it is 0.2 KB with its envelope.
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
    // What a policy costs is little: it takes many rounds to tell.
    weight: 3,
  },
]
