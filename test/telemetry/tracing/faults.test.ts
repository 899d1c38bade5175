import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type FaultFate, type InjectedFault, injectedFaults } from '../../../src/mesh/injected.ts'
import type { ReceivedEvent } from '../../support/otlp-spans.ts'
import { answered, retrying, tracedMesh, unavailable, type MeshSetUp } from './traced-mesh.ts'

const fault = (name: string, more: Partial<InjectedFault> = {}): InjectedFault => ({
  name,
  type: 'test',
  side: 'upstream',
  attempt: 1,
  status: 'applied',
  ...more,
})

const inWords = ({ attributes }: ReceivedEvent) =>
  ['breakwater.fault.name', 'breakwater.fault.fate'].map((name) => String(attributes[name])).join(' ')

/** Returns the faults in the spans of a call with two tries, and their fates. */
async function told(
  t: Parameters<typeof tracedMesh>[0],
  faults: InjectedFault[] | undefined,
  fates: readonly FaultFate[],
  more: MeshSetUp = {},
) {
  const mesh = await tracedMesh(t, {
    settings: retrying,
    upstream: ({ attempt, record }) => {
      injectedFaults.note(record, faults)
      return attempt === 1 ? unavailable : answered()
    },
    account: () => fates,
    ...more,
  })
  await mesh.run()
  await mesh.spans()
  const eventsOf = (kind: 'server' | 'client') =>
    mesh.receiver
      .of(kind)
      .map(({ events }) => events.filter(({ name }) => name === 'breakwater.fault').map(inWords))
  return { server: eventsOf('server')[0], clients: eventsOf('client'), mesh }
}

test('a fault tells its fate, on the span of its target', async (t) => {
  const [slow, odd, dry] = [
    fault('slow'),
    fault('odd', { side: 'client' }),
    fault('dry', { status: 'shadow' }),
  ]
  const { server, clients } = await told(
    t,
    [slow, odd, dry],
    [
      { fault: slow, fate: 'masked' },
      { fault: odd, fate: 'surfaced' },
    ],
  )
  assert.deepEqual(clients, [['slow masked', 'dry undefined'], []])
  assert.deepEqual(server, ['odd surfaced'])
})

test('a fault that hit two tries has a fate for each try', async (t) => {
  const [first, second] = [fault('lie'), fault('lie', { attempt: 2 })]
  const { clients } = await told(
    t,
    [first, second],
    [
      { fault: second, fate: 'escaped' },
      { fault: first, fate: 'masked' },
    ],
  )
  assert.deepEqual(clients, [['lie masked'], ['lie escaped']])
})

test('an answer that a fault of an earlier call has spoilt says so, and is always sent', async (t) => {
  const { server, clients, mesh } = await told(t, undefined, [{ fault: fault('lie'), fate: 'escaped' }], {
    config: { sample: 0 },
    upstream: () => answered(),
  })
  assert.deepEqual([server, clients], [['lie escaped'], [[]]])
  assert.equal(mesh.receiver.of('server')[0]?.attributes['breakwater.kept'], 'fault')
})
