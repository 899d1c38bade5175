import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, type Json } from './gateway.ts'
import { closeClients } from './sdk-client.ts'
import { Shop, type Got } from './shop.ts'
import { lanes, lanesOf, type Act } from './stage.ts'

/** Counters that are expected, or a check of them. */
type Counts = Json | ((found: Json) => void)

/** A fault, and what a client gets of it. */
export interface Scene extends Act {
  readonly title: string
  /** Orders that are asked for, one after another; the last reply is looked at. */
  readonly orders?: readonly number[]
  readonly got: (got: Got) => void
  /** How the gateway judged the attempts of all these calls. */
  readonly verdicts: Counts
  /** What became of the injections. */
  readonly fates: Counts
  /** How long the calls take at least. */
  readonly leastMs?: number
}

/** Plays each scene on every lane where it can be, behind one gateway. */
export function play(scenes: readonly Scene[]): void {
  let shop: Shop
  before(async () => {
    shop = await Shop.start(scenes)
  })
  after(async () => {
    await closeClients()
    await cleanUp()
  })
  for (const lane of lanes) {
    for (const scene of scenes) {
      if (!lanesOf(scene).includes(lane)) continue
      const { title, tool, orders = [1], got, verdicts, fates, leastMs = 0 } = scene
      test(`${lane.name}: ${title}`, async () => {
        const since = performance.now()
        let last: Got | undefined
        for (const order_id of orders) last = await shop.call(lane, tool, { order_id })
        assert.ok(performance.now() - since >= leastMs)
        got(last!)
        check(await shop.verdicts(lane, tool), verdicts)
        check(await shop.fates(lane, tool), fates)
      })
    }
  }
}

function check(found: Json, expected: Counts): void {
  if (typeof expected === 'function') expected(found)
  else assert.deepEqual(found, expected)
}

/** That nothing else happened. */
export const one = (what: string): Json => ({ [what]: 1 })

/** Expects a good reply that begins with a text. */
export const says = (text: string) => (got: Got) =>
  assert.deepEqual([got.text, got.reason], [text, undefined])

/** Expects the error of the gateway with this reason. */
export const fails = (reason: string) => (got: Got) => assert.equal(got.reason, reason, got.text)

/** Expects the same value in both forms. */
export const both = (value: unknown) => (got: Got) => {
  assert.deepEqual(JSON.parse(got.text), value)
  assert.deepEqual(got.structured, value)
}

/** Expects word that something is missing, from this source; a server names none. */
export function flagged({ meta }: Got, source: string | undefined, reason: RegExp): void {
  const flag = meta['dev.breakwater/partial'] as Json | undefined
  assert.equal(flag?.source, source)
  assert.match(String(flag?.reason), reason)
}
