import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Signal } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { SingleFlight } from '../../src/upstreams/pipe/single-flight.ts'

const impatient = gatewayError('attempt_timeout', 'too slow')

/** An attempt that ends when the test says so. */
function attempt() {
  let abandoned: Signal | undefined
  let resolve: (value: string) => void = () => undefined
  let reject: (cause: Error) => void = () => undefined
  const promise = new Promise<string>((...settle) => ([resolve, reject] = settle))
  let failures = 0
  const flight = new SingleFlight(
    (signal) => {
      abandoned = signal
      return promise
    },
    () => failures++,
  )
  return { flight, resolve, reject, abandoned: () => abandoned?.aborted, failures: () => failures }
}

test('all who join get the one result', async () => {
  const { flight, resolve } = attempt()
  const joined = Promise.all([1, 2, 3].map(() => flight.join(new AbortController().signal)))
  resolve('up')
  assert.deepEqual(await joined, ['up', 'up', 'up'])
  assert.equal(await flight.join(new AbortController().signal), 'up')
})

test('one who leaves does not end it for the others', async () => {
  const { flight, resolve, abandoned } = attempt()
  const leaver = new AbortController()
  const left = flight.join(leaver.signal)
  const stayed = flight.join(new AbortController().signal)
  leaver.abort(impatient)
  await assert.rejects(left, (error) => error === impatient)
  assert.equal(abandoned(), false)
  resolve('up')
  assert.equal(await stayed, 'up')
})

test('when the last one leaves it is abandoned', async () => {
  const { flight, abandoned } = attempt()
  const leavers = [new AbortController(), new AbortController()]
  const left = leavers.map(({ signal }) =>
    assert.rejects(flight.join(signal), (error) => error === impatient),
  )
  for (const leaver of leavers) leaver.abort(impatient)
  await Promise.all(left)
  assert.equal(abandoned(), true)
})

test('leaving after it succeeded abandons nothing', async () => {
  const { flight, resolve, abandoned } = attempt()
  const caller = new AbortController()
  const joined = flight.join(caller.signal)
  resolve('up')
  await joined
  caller.abort(impatient)
  assert.equal(abandoned(), false)
})

test('a failure reaches all, and is told once', async () => {
  const { flight, reject, failures } = attempt()
  const joined = [1, 2].map(() =>
    assert.rejects(flight.join(new AbortController().signal), { message: 'down' }),
  )
  reject(new Error('down'))
  await Promise.all(joined)
  assert.equal(failures(), 1)
})
