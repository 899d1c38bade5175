/** Calls tools of the gateway in turn, in a separate process: first as in `filling`, then at a steady rate. */
import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import { filling, toolNames, type Ending } from './scrape-tools.ts'
import { Session } from './session.ts'

/** First the tools to fill, then any number of rates of good calls a second. Each order is answered at its end. */
export type Order = { readonly fill: string } | { readonly perSecond: number }

const PATH = '/mcp/upstream'
const CALLERS = 16
const EVERY_MS = 2

/** Largest number of calls under way, so that a slow gateway is not buried. */
const MAX_UNDER_WAY = 64

let session: Session
let calls = 0
let underWay = 0
let perSecond = 0
let due = 0
let lastAt = 0

process.on('message', (order: Order) => {
  const done = () => process.send?.('done')
  if ('fill' in order) return void fill(order.fill).then(done)
  perSecond = order.perSecond
  lastAt = systemClock.now()
  due = 0
  return done()
})

async function fill(origin: string): Promise<void> {
  const pool = new Pool(origin, { connections: MAX_UNDER_WAY })
  session = await Session.open(pool, PATH, toolNames[0]!, 'legacy')
  const left = toolNames.values()
  const caller = async () => {
    for (const tool of left) for (const ending of filling) await call(tool, ending)
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  tick()
}

/** The result does not matter here: the gateway counts the result. */
function call(tool: string, ending: Ending): Promise<void> {
  const id = ++calls
  underWay++
  return session
    .call(id, tool, `${ending} ${id}`, '')
    .catch(() => undefined)
    .finally(() => underWay--)
}

function tick(): void {
  const now = systemClock.now()
  due = Math.min(due + ((now - lastAt) * perSecond) / 1_000, MAX_UNDER_WAY)
  lastAt = now
  for (; due >= 1 && underWay < MAX_UNDER_WAY; due--) void call(toolNames[calls % toolNames.length]!, 'good')
  setTimeout(tick, EVERY_MS)
}
