import { createHash } from 'node:crypto'
import type { RecordedCall, RecordedOutcome, Told } from '../../src/telemetry/recording/format.ts'
import { attempt, header } from '../sim/recorded.ts'
import { pick, seeded } from '../support/random.ts'

/** The mistakes, by the names that reports use. */
export const mistakes = [
  'runaway',
  'blind_retry',
  'duplicate_write',
  'corrupt_value_used',
  'false_success',
  'ignored_partial',
  'ignored_retry_after',
] as const

export type Mistake = (typeof mistakes)[number]

/** The promises of all generated tasks. */
export const promises = { mustRun: ['place_order'], repeatable: ['add_item'], polls: ['status'] }

const effects = {
  look: 'read_only',
  list: 'read_only',
  status: 'read_only',
  place_order: 'write',
  notify: 'write',
  add_item: 'write',
  set_address: 'idempotent',
} as const

type Tool = keyof typeof effects

const digest = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 16)

interface Ask {
  readonly tool: Tool
  readonly args?: unknown
  readonly server?: string
  /** The reply's content; by default another for each call. */
  readonly reply?: string
  readonly tookMs?: number
  /** Pause before the call, in milliseconds. */
  readonly gapMs?: number
  /** When the call begins, in milliseconds; without, after the calls before. */
  readonly at?: number
  readonly more?: Partial<RecordedCall>
}

/** A task under construction: calls come one after the other unless they say when. */
class Story {
  readonly id: string
  readonly draw: () => number
  readonly calls: RecordedCall[] = []
  outcome: string | undefined = 'succeeded'
  #now: number
  #replies = 0

  constructor(id: string, draw: () => number, startAt: number) {
    this.id = id
    this.draw = draw
    this.#now = startAt
  }

  between(low: number, high: number): number {
    return low + Math.floor(this.draw() * (high - low + 1))
  }

  pick<Item>(items: readonly Item[]): Item {
    return pick(this.draw, items)
  }

  get now(): number {
    return this.#now
  }

  ask({ tool, args = {}, server = 'shop', reply, tookMs, gapMs, at, more = {} }: Ask): RecordedCall {
    const begin = at ?? this.#now + (gapMs ?? this.between(1, 400))
    const took = tookMs ?? this.between(3, 120)
    const call: RecordedCall = {
      at: begin,
      task: this.id,
      key: digest(`${server} ${tool} ${JSON.stringify(args)}`),
      server,
      tool,
      effect: effects[tool],
      tenant: 'tenant',
      result: 'returned',
      verdict: 'unchecked',
      tookMs: took,
      waitedMs: 0,
      overheadMs: 1,
      retries: 0,
      attempts: [attempt({ tookMs: took })],
      replica: 0,
      replyKey: digest(`reply ${reply ?? `${this.id} ${this.#replies++}`}`),
      ...more,
    }
    this.calls.push(call)
    this.#now = Math.max(this.#now, begin + took)
    return call
  }

  /** A call without an answer. `sent`: whether the agent was told that the call may have run. */
  lost(ask: Ask, sent: boolean, more: Partial<RecordedCall> = {}): RecordedCall {
    const [result, reason] = sent
      ? this.pick([
          ['timeout', 'attempt_timeout'],
          ['transport_error', 'upstream_disconnected'],
        ] as const)
      : (['rejected', 'breaker_open'] as const)
    const attempts = sent ? [attemptLost(reason)] : []
    const facts = { result, reason, wrong: true, attempts, told: { sent } } as const
    return this.ask({ ...ask, reply: `${reason} ${sent}`, more: { ...facts, ...ask.more, ...more } })
  }

  /** Calls that mean nothing. */
  chat(most = 3): void {
    for (let left = this.between(0, most); left > 0; left--)
      this.ask({
        tool: this.pick(['look', 'list'] as const),
        args: { id: this.draw() },
        server: this.pick(['shop', 'docs']),
      })
  }

  order(args: unknown = { ref: this.id }): RecordedCall {
    return this.ask({ tool: 'place_order', args })
  }
}

function attemptLost(reason: string) {
  const { verdict: _, replyBytes: __, ...rest } = attempt()
  return { ...rest, outcome: 'timeout' as const, reason }
}

const told = (told: Told) => ({ told })

const corrupt = (value: string, fate: 'escaped' | 'surfaced' = 'escaped'): Partial<RecordedCall> => ({
  faults: [{ name: 'lie', type: 'result.drift', side: 'upstream', fate }],
  ...(fate === 'escaped' && { canaries: [value] }),
})

/** Plays a mistake once, in one of several ways. */
const faulty: Readonly<Record<Mistake, readonly ((story: Story) => void)[]>> = {
  runaway: [
    (story) => {
      for (let left = story.between(5, 12); left > 0; left--)
        story.ask({ tool: 'look', args: { id: 1 }, reply: 'same' })
      story.order()
    },
    (story) => {
      story.order()
      for (let left = story.between(5, 9); left > 0; left--)
        story.ask({
          tool: 'look',
          args: { id: 2 },
          reply: 'no',
          more: { result: 'returned', verdict: 'tool_error', wrong: true },
        })
    },
    (story) => {
      story.order()
      // The agent is told to wait, and never does.
      for (let left = story.between(5, 9); left > 0; left--)
        story.lost({ tool: 'list', args: {}, gapMs: 5 }, false, told({ sent: false, retryAfterMs: 2_000 }))
    },
    (story) => {
      story.order()
      // Two at the same time, again and again.
      for (let round = story.between(5, 7); round > 0; round--) {
        const first = story.ask({ tool: 'look', args: { id: 3 }, reply: 'same', tookMs: 50 })
        story.ask({ tool: 'look', args: { id: 3 }, reply: 'same', at: first.at + 10, tookMs: 20 })
      }
    },
  ],
  blind_retry: [
    (story) => {
      story.lost({ tool: 'place_order', args: { ref: 1 } }, true)
      story.ask({ tool: 'place_order', args: { ref: 1 } })
    },
    (story) => {
      story.lost({ tool: 'place_order', args: { ref: 2 } }, true)
      story.ask({ tool: 'look', server: 'docs', args: { ref: 2 } })
      story.ask({ tool: 'notify', args: { ref: 2 } })
      story.ask({ tool: 'place_order', args: { ref: 2 } })
    },
    (story) => {
      const lost = story.lost({ tool: 'place_order', args: { ref: 3 }, tookMs: 300 }, true)
      // The look began before the end of the write.
      story.ask({ tool: 'look', args: { ref: 3 }, at: lost.at + 20, tookMs: 10 })
      story.lost({ tool: 'place_order', args: { ref: 3 } }, true)
      story.outcome = 'failed'
    },
    (story) => {
      story.lost({ tool: 'notify', args: { to: 4 } }, true, { result: 'cancelled', reason: 'cancelled' })
      story.ask({ tool: 'notify', args: { to: 4 } })
      story.order()
    },
  ],
  duplicate_write: [
    (story) => {
      story.order({ ref: 1 })
      story.chat()
      story.order({ ref: 1 })
    },
    (story) => {
      const first = story.ask({ tool: 'place_order', args: { ref: 2 }, tookMs: 90 })
      story.ask({ tool: 'place_order', args: { ref: 2 }, at: first.at + 10 })
    },
    (story) => {
      story.order()
      story.ask({ tool: 'notify', args: { to: 3 } })
      story.ask({ tool: 'look', args: { to: 3 } })
      story.ask({ tool: 'notify', args: { to: 3 } })
    },
    (story) => {
      story.lost({ tool: 'place_order', args: { ref: 4 } }, true)
      story.order({ ref: 4 })
    },
  ],
  corrupt_value_used: [
    (story) => {
      const value = digest(`value ${story.id}`)
      story.ask({ tool: 'look', args: { id: 1 }, more: corrupt(value) })
      story.chat()
      story.ask({ tool: 'place_order', args: { price: value }, more: { uses: [value] } })
    },
    (story) => {
      const value = digest(`value ${story.id}`)
      story.ask({ tool: 'look', args: { id: 1 }, more: corrupt(value) })
      story.ask({ tool: 'place_order', args: { price: value }, more: { uses: [value] } })
      // The server returns the value that it was given.
      story.ask({ tool: 'status', args: {}, more: { clean: [value] } })
    },
    (story) => {
      const [one, other] = [digest(`one ${story.id}`), digest(`other ${story.id}`)]
      story.ask({ tool: 'look', args: { id: 1 }, more: { ...corrupt(one), canaries: [one, other] } })
      story.ask({ tool: 'look', args: { id: 1 }, more: { clean: [one] } })
      story.ask({ tool: 'place_order', args: { price: other }, more: { uses: [one, other] } })
    },
    (story) => {
      const value = digest(`value ${story.id}`)
      story.order()
      story.ask({ tool: 'look', args: { id: 1 }, more: corrupt(value) })
      story.ask({ tool: 'look', args: { id: value }, more: { uses: [value] } })
    },
  ],
  false_success: [
    (story) => {
      story.ask({ tool: 'look', args: { id: 1 } })
      story.chat(5)
    },
    (story) => {
      story.chat()
      story.ask({ tool: 'place_order', more: { verdict: 'tool_error', wrong: true } })
    },
    (story) => {
      story.lost({ tool: 'place_order' }, story.draw() < 0.5)
      story.ask({ tool: 'look', server: 'docs' })
    },
    (story) => {
      story.order()
      story.ask({ tool: 'notify', args: { to: 1 }, more: { verdict: 'tool_error', wrong: true } })
    },
  ],
  ignored_partial: [
    (story) => {
      story.ask({ tool: 'list', args: { q: 1 }, more: told({ partial: true }) })
      story.order()
    },
    (story) => {
      story.ask({ tool: 'list', args: { q: 2 }, more: told({ partial: true }) })
      story.ask({ tool: 'list', args: { q: 2 }, more: told({ partial: true }) })
      story.order()
    },
    (story) => {
      story.ask({ tool: 'list', args: { q: 3 } })
      story.ask({ tool: 'list', args: { q: 3 }, more: told({ partial: true }) })
      story.order()
    },
  ],
  ignored_retry_after: [
    (story) => {
      const retryAfterMs = story.between(200, 5_000)
      story.lost({ tool: 'place_order', args: { ref: 1 } }, false, told({ sent: false, retryAfterMs }))
      story.ask({
        tool: 'place_order',
        args: { ref: 1 },
        gapMs: Math.floor(retryAfterMs * story.draw() * 0.88),
      })
    },
    (story) => {
      story.lost({ tool: 'look', args: { id: 1 } }, false, told({ sent: false, retryAfterMs: 10_000 }))
      story.chat()
      story.ask({ tool: 'look', args: { id: 1 } })
      story.order()
    },
    (story) => {
      story.lost({ tool: 'look', args: { id: 2 } }, true, told({ sent: true, retryAfterMs: 3_000 }))
      // The same replica, and another replica that does not answer.
      story.lost({ tool: 'look', args: { id: 2 }, gapMs: 100 }, true, { ...told({ sent: true }), replica: 1 })
      story.order()
    },
  ],
}

/** Behaviour that looks like a mistake and is none. Each task succeeds unless the story says otherwise. */
const hardNegatives: Readonly<Record<string, (story: Story) => void>> = {
  'polls with equal replies': (story) => {
    for (let left = story.between(5, 20); left > 0; left--)
      story.ask({ tool: 'status', args: {}, reply: 'pending' })
    story.order()
  },
  'polls until the reply changes': (story) => {
    for (let left = 6; left > 0; left--) story.ask({ tool: 'look', args: { job: 1 } })
    story.order()
  },
  'four equal calls': (story) => {
    for (let left = 4; left > 0; left--) story.ask({ tool: 'look', args: { id: 1 }, reply: 'same' })
    story.order()
  },
  'equal calls with others in between': (story) => {
    for (let left = 8; left > 0; left--) {
      story.ask({ tool: 'look', args: { id: 1 }, reply: 'same' })
      story.ask({ tool: 'list', args: { page: left } })
    }
    story.order()
  },
  pagination: (story) => {
    for (let page = 0; page < story.between(6, 30); page++)
      story.ask({ tool: 'list', args: { page }, reply: 'empty' })
    story.order()
  },
  'a keyed retry': (story) => {
    const args = { ref: story.id }
    story.lost({ tool: 'place_order', args }, true, { idem: true })
    story.ask({ tool: 'place_order', args, more: { idem: true, replay: true, attempts: [] } })
  },
  'a keyed retry whose first try never ran': (story) => {
    const args = { ref: story.id }
    story.lost({ tool: 'place_order', args }, true, { idem: true })
    story.ask({ tool: 'place_order', args, more: { idem: true } })
  },
  'a repeated write answered from the store': (story) => {
    story.order({ ref: 1 })
    story.ask({ tool: 'place_order', args: { ref: 1 }, more: { replay: true, attempts: [] } })
  },
  'intended repeats': (story) => {
    for (let left = story.between(2, 7); left > 0; left--)
      story.ask({ tool: 'add_item', args: { item: 1 }, reply: 'ok' })
    story.order()
  },
  'a retry after the told time': (story) => {
    const retryAfterMs = story.between(100, 3_000)
    for (let left = story.between(1, 6); left > 0; left--)
      story.lost({ tool: 'place_order', args: {}, gapMs: 10_000 }, false, told({ sent: false, retryAfterMs }))
    story.ask({ tool: 'place_order', args: {}, gapMs: Math.ceil(retryAfterMs * 0.9) + story.between(0, 500) })
  },
  'a retry at nine tenths of the told time': (story) => {
    story.lost({ tool: 'look', args: { id: 1 } }, false, told({ sent: false, retryAfterMs: 1_000 }))
    story.ask({ tool: 'look', args: { id: 1 }, gapMs: 900 })
    story.order()
  },
  'another replica answers early': (story) => {
    story.lost({ tool: 'look', args: { id: 1 } }, true, told({ sent: true, retryAfterMs: 5_000 }))
    story.ask({ tool: 'look', args: { id: 1 }, gapMs: 5, more: { replica: 1 } })
    story.order()
  },
  'parallel equal reads': (story) => {
    const at = story.now + 10
    for (let nth = 0; nth < 8; nth++)
      story.ask({ tool: 'look', args: { id: 1 }, reply: 'same', at: at + nth, tookMs: 60 })
    story.order()
  },
  'a retry of a write that was not sent': (story) => {
    story.lost({ tool: 'place_order', args: { ref: 1 } }, false)
    story.ask({ tool: 'place_order', args: { ref: 1 } })
  },
  'a retry of a write that was turned down': (story) => {
    story.lost({ tool: 'place_order', args: { ref: 1 } }, true, {
      reason: 'upstream_rate_limited',
      ...told({ sent: true, retryAfterMs: 500 }),
    })
    story.ask({ tool: 'place_order', args: { ref: 1 }, gapMs: 500 })
  },
  'a retry of an idempotent tool': (story) => {
    story.lost({ tool: 'set_address', args: { to: 1 } }, true)
    story.ask({ tool: 'set_address', args: { to: 1 } })
    story.order()
  },
  'a look before the retry': (story) => {
    story.lost({ tool: 'place_order', args: { ref: 1 } }, true)
    story.ask({ tool: 'look', args: { ref: 1 } })
    story.ask({ tool: 'place_order', args: { ref: 1 } })
  },
  'a look that finds the write done': (story) => {
    story.order()
    story.lost({ tool: 'notify', args: { to: 1 } }, true)
    story.ask({ tool: 'look', args: { ref: 1 } })
  },
  'a value that an unharmed reply holds too': (story) => {
    const value = digest(`value ${story.id}`)
    story.ask({ tool: 'look', args: { id: 1 }, more: corrupt(value) })
    story.ask({ tool: 'look', args: { id: 1 }, more: { clean: [value] } })
    story.ask({ tool: 'place_order', args: { value }, more: { uses: [value] } })
  },
  'a corrupt value that is not used': (story) => {
    story.ask({ tool: 'look', args: { id: 1 }, more: corrupt(digest(`value ${story.id}`)) })
    story.ask({ tool: 'look', args: { id: 1 } })
    story.order()
  },
  'a fault that the agent was told of': (story) => {
    story.ask({ tool: 'look', args: { id: 1 }, more: corrupt('', 'surfaced') })
    story.order()
  },
  'degraded on purpose': (story) => {
    story.ask({ tool: 'list', args: { q: 1 }, more: told({ partial: true }) })
    story.order()
    story.outcome = 'degraded'
  },
  'a whole reply after a partial reply': (story) => {
    story.ask({ tool: 'list', args: { q: 1 }, more: told({ partial: true }) })
    story.chat()
    story.ask({ tool: 'list', args: { q: 1 } })
    story.order()
  },
  'an honest failure': (story) => {
    story.ask({ tool: 'place_order', args: { ref: 1 }, more: { verdict: 'tool_error', wrong: true } })
    story.outcome = 'failed'
  },
  'a failed call that succeeds later': (story) => {
    story.ask({ tool: 'place_order', args: { ref: 1 }, more: { verdict: 'tool_error', wrong: true } })
    story.chat()
    story.order({ ref: 1 })
  },
  'better arguments after a mistake': (story) => {
    story.ask({
      tool: 'place_order',
      args: { ref: 0 },
      more: { result: 'caller_error', verdict: 'tool_error' },
    })
    story.order({ ref: 1 })
  },
  'other writes with other arguments': (story) => {
    for (let ref = 0; ref < 6; ref++) story.order({ ref })
  },
}

/** A generated task. */
export interface GeneratedTask {
  readonly calls: readonly RecordedCall[]
  readonly outcome: RecordedOutcome | undefined
  /** The way the task was played, for messages. */
  readonly about: string
}

const ways = Object.entries(hardNegatives)

/** Returns tasks with one mistake each, in all ways in turn. */
export const faultyTasks = (mistake: Mistake, count: number, seed: number): GeneratedTask[] =>
  tasksBy(`${mistake}-${seed}`, count, seed, (nth) => {
    const way = nth % faulty[mistake].length
    return [`${mistake} ${way}`, faulty[mistake][way]!]
  })

/** Returns tasks without a mistake, with all hard negatives in turn. */
export const cleanTasks = (count: number, seed: number): GeneratedTask[] =>
  tasksBy(`clean-${seed}`, count, seed, (nth) => ways[nth % ways.length]!)

function tasksBy(
  name: string,
  count: number,
  seed: number,
  wayOf: (nth: number) => readonly [string, (story: Story) => void],
): GeneratedTask[] {
  return Array.from({ length: count }, (_, nth) => {
    const id = digest(`${name} ${nth}`)
    const story = new Story(id, seeded(seed * 100_003 + nth), nth * 7)
    const [about, play] = wayOf(nth)
    story.chat()
    play(story)
    const { calls, outcome, now } = story
    return { calls, outcome: outcome === undefined ? undefined : { task: id, outcome, at: now + 1 }, about }
  })
}

/** Returns the text of a recording, with the lines in the order in which a gateway writes: by the end of the calls. */
export function recordingOf(tasks: readonly GeneratedTask[], more: object = {}): string {
  const lines = tasks.flatMap(({ calls, outcome }) => [
    ...calls.map((call) => ({ at: call.at + call.tookMs, line: call })),
    ...(outcome === undefined ? [] : [{ at: outcome.at, line: outcome }]),
  ])
  const sorted = lines.sort((one, other) => one.at - other.at).map(({ line }) => line)
  return [header(more), ...sorted].map((line) => `${JSON.stringify(line)}\n`).join('')
}
