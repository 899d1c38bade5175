import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import type { PolicyContext } from '../../../src/mesh/policy.ts'
import { bulkhead } from '../../../src/policies/bulkhead.ts'
import { toolCall, type CallParts } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'

export const answer: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'unchecked',
}

/** A pool as the admin API shows it. */
export interface PoolFacts {
  readonly running: number
  readonly overdue: number
  readonly waiting: number
  readonly tenants: number
  readonly tools: readonly { tool?: string; limit: number; running: number; waiting: number }[]
}

/** A bulkhead before a server that answers on the test's command. Ids identify calls. */
export class Stage {
  readonly clock = new ManualClock()
  readonly context: PolicyContext = testPolicyContext(this.clock)
  readonly started: (string | number)[] = []
  readonly outcomes = new Map<string | number, Outcome>()
  readonly #settle = new Map<string | number, (outcome: Outcome) => void>()
  readonly #settings: object

  constructor(settings: object) {
    this.#settings = settings
  }

  /** Sends a call of the tool `tool`, under other settings if given. */
  send(id: string, parts: Partial<CallParts> & { tool?: string; settings?: object } = {}): Call {
    const { tool = 'tool', settings = this.#settings, ...more } = parts
    const call = toolCall(tool, {}, { id, ...more })
    const config = bulkhead.schema.parse(settings)
    const layer = bulkhead.build(config, this.context, testScope({ server: 'search', tool }))
    const service = layer(({ id }) => {
      this.started.push(id)
      return new Promise((resolve) => this.#settle.set(id, resolve))
    })
    void service(call).then((outcome) => this.outcomes.set(id, outcome))
    return call
  }

  /** Ends a running call. */
  async end(id: string, outcome: Outcome = answer): Promise<void> {
    this.#settle.get(id)?.(outcome)
    await setImmediate()
  }

  /** Returns the error of a rejected call; fails if the call was not rejected. */
  async rejected(id: string) {
    await setImmediate()
    const outcome = this.outcomes.get(id)
    assert.equal(outcome?.kind, 'rejected')
    assert.ok(outcome.kind === 'rejected')
    assert.equal(outcome.by, 'bulkhead')
    return outcome.error
  }

  /** Returns the pools in use, now or before. */
  pools(): PoolFacts[] {
    return this.context.state
      .list<{ snapshot(): PoolFacts[] }>('bulkhead')
      .flatMap(([, kept]) => kept.snapshot())
  }
}
