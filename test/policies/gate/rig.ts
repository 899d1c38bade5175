import { setImmediate } from 'node:timers/promises'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import type { MeshEvent } from '../../../src/mesh/policy.ts'
import { gate } from '../../../src/policies/gate.ts'
import type { GateSnapshot } from '../../../src/policies/gate/state-machine.ts'
import { toolCall, type CallParts } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { answer, failed } from '../retry/scripted.ts'

export const lost = failed('upstream_unavailable', { sent: false })

interface Options {
  config?: object
  replicas?: number
  /** Whether the gateway can probe the replicas. */
  isProbed?: boolean
}

/** A gate before a server that answers on the test's command. Ids identify calls. */
export function setUp({ config = {}, replicas = 1, isProbed = true }: Options = {}) {
  const clock = new ManualClock()
  const events: MeshEvent[] = []
  const context = testPolicyContext(clock, events)
  const lostReplicas = new Set<number>()
  const probes: ((isThere: boolean) => void)[] = []
  const sent: (string | number)[] = []
  const ends = new Map<string | number, (outcome: Outcome) => void>()
  const outcomes = new Map<string | number, Outcome>()
  const scope = testScope({
    replicas,
    isLost: (replica) => lostReplicas.has(replica),
    reached: () => (isProbed ? new Promise((resolve) => probes.push(resolve)) : undefined),
  })
  const service = gate.build(
    gate.schema.parse(config),
    context,
    scope,
  )((call) => {
    sent.push(call.id)
    return new Promise((resolve) => ends.set(call.id, resolve))
  })
  const send = (id: string, { size = 0, ...parts }: Partial<CallParts> & { size?: number } = {}): Call => {
    const call = toolCall('tool', size === 0 ? {} : { text: 'x'.repeat(size) }, { id, ...parts })
    void service(call).then((outcome) => outcomes.set(id, outcome))
    return call
  }
  const end = async (id: string, outcome: Outcome = answer) => {
    ends.get(id)?.(outcome)
    await setImmediate()
  }
  return {
    clock,
    sent,
    outcomes,
    probes,
    lostReplicas,
    send,
    end,
    /** Loses the server through one call. */
    async lose() {
      lostReplicas.add(0)
      send('first to be lost')
      await end('first to be lost', lost)
      sent.length = 0
    },
    /** Lets the pending probes succeed. */
    async reach() {
      lostReplicas.clear()
      for (const tell of probes.splice(0)) tell(true)
      await setImmediate()
    },
    snapshot: () => context.state.list<{ snapshot(): GateSnapshot }>('gate')[0]![1].snapshot(),
    /** Returns the metrics: a state, or `waiting`. */
    gauges() {
      const [[, kept] = []] = context.state.list('gate')
      const samples = (gate.states ?? []).flatMap((state) => state.gauge?.samples(kept) ?? [])
      return Object.fromEntries(
        samples.map(({ labels, value }) => [(labels as { state?: string }).state ?? 'waiting', value]),
      )
    },
    /** Returns the states in events. */
    told: () => events.flatMap(({ type, detail }) => (type === 'gate' ? String(detail?.state) : [])),
  }
}
