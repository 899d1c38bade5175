import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ActiveRuns } from '../../src/approval/active-runs.ts'
import type { HitTool } from '../../src/approval/envelope.ts'
import { noHits } from '../../src/experiments/guarded/record.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'

/** Returns the rungs that a completed run with injected faults reaches. */
function reachedBy(hit: readonly HitTool[]): readonly { readonly identity: string }[] {
  const ended: { readonly reached: readonly { readonly identity: string }[] }[] = []
  const book = { over: (event: (typeof ended)[number]) => ended.push(event) }
  const active = new ActiveRuns({ book, runs: {}, envelopes: {}, hasher: {} } as never)
  const spec = specOf()
  active.add('run-1', { envelope: 'env-test', hit, spec })
  const faults = [{ name: 'broken', type: 'rpc.error', ...noHits, decided: 9, injected: 9 }]
  active.ended(recordOf(spec, { state: 'completed', stages: [{ share: 0.5 }] as never, faults }))
  return ended[0]!.reached
}

const hitAt = (identity: string): HitTool => ({ server: identity, identity, tool: 't', effect: 'read_only' })

test('a completed run counts for the ladder of its only server', () => {
  assert.deepEqual(
    reachedBy([hitAt('a')]).map(({ identity }) => identity),
    ['a'],
  )
})

test('a completed run at two servers counts for neither: one of them may have got no fault', () => {
  assert.deepEqual(reachedBy([hitAt('a'), hitAt('b')]), [])
})
