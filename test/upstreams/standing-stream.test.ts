import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Layer } from '../../src/mesh/call.ts'
import { type InjectedFault, injectedFaults } from '../../src/mesh/injected.ts'
import type { ReplySink } from '../../src/upstreams/http/http-reply.ts'
import { StandingStreams } from '../../src/upstreams/http/standing-stream.ts'
import { TestCaller } from '../support/caller.ts'

const sink: ReplySink = {
  opened: () => undefined,
  event: () => undefined,
  body: () => undefined,
  ended: () => undefined,
  failed: () => undefined,
}

/** Asks for a stream through faults; each call meets the faults `met`. */
function asked(met?: InjectedFault[]) {
  let over = 0
  const faults: Layer = (next) => (call) => {
    injectedFaults.note(call.record, met)
    return next(call).then((outcome) => {
      over++
      return outcome
    })
  }
  const found: ReplySink[] = []
  const streams = new StandingStreams({ server: 's', caller: new TestCaller(), faults })
  streams.ask(sink, (given) => found.push(given))
  return { found, over: () => over }
}

test('a stream without a fault goes to its caller, and its call is not kept while the stream is open', async () => {
  const { found, over } = asked()
  await setImmediate()
  assert.deepEqual([found, over()], [[sink], 1])
})

test('a stream with a fault ends for faults when it has ended', async () => {
  const { found, over } = asked([])
  await setImmediate()
  assert.equal(over(), 0)
  found[0]!.ended()
  await setImmediate()
  assert.equal(over(), 1)
})
