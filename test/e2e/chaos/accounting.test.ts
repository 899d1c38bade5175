import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { RawClient, type RawReply } from '../support/raw-client.ts'
import { closeServers, RawServer, sendResult } from '../support/raw-server.ts'
import { until } from '../../support/until.ts'

/*
 * Compares the gateway's account of its faults with the count of a client that only looks at its socket. The journal
 * file supplies the attempts faults were drawn for, and nothing else.
 */

/** Calls of each tool, in sequence. */
const CALLS = 40

/** Delay of faults that only delay, in milliseconds. */
const HOLD_MS = 120

interface Kind {
  /** The tool, and the fault that hits it. */
  readonly tool: string
  readonly type: string
  readonly fault?: Json
  /** Whether a good answer to a call with a fault is late. */
  readonly delays?: true
}

const kinds: readonly Kind[] = [
  { tool: 'refused', type: 'conn.refused' },
  { tool: 'reset', type: 'conn.reset' },
  { tool: 'half_open', type: 'conn.half_open', fault: { hold: HOLD_MS }, delays: true },
  {
    tool: 'latency',
    type: 'conn.latency',
    fault: { distribution: { kind: 'fixed', delay: HOLD_MS } },
    delays: true,
  },
  { tool: 'status', type: 'http.status' },
  { tool: 'status_to_agent', type: 'http.status', fault: { side: 'client' } },
  { tool: 'error', type: 'rpc.error' },
  { tool: 'malformed', type: 'rpc.malformed' },
  { tool: 'duplicate', type: 'rpc.duplicate' },
  { tool: 'limited', type: 'limit.429', fault: { form: 'absent' } },
  { tool: 'is_error', type: 'result.is_error' },
  {
    tool: 'drift',
    type: 'result.drift',
    fault: { operators: [{ op: 'rename', path: '/items', to: 'entries' }] },
  },
  {
    tool: 'partial',
    type: 'result.partial',
    fault: { declared: true, operators: [{ op: 'truncate_list', path: '/items', keep: 0.5 }] },
  },
]

/** Two faults of one tool: where the outer fault ends a call, the inner fault is not reached. */
const outer = { tool: 'both', type: 'conn.refused', name: 'outer' }
const inner = { tool: 'both', type: 'rpc.malformed', name: 'inner' }

const names = [
  'retry',
  'gate',
  'overdue',
  'breaker',
  'deadline',
  'attemptTimeout',
  'verdict',
  'bulkhead',
  'degrade',
  'idempotency',
]
/** Calls of a tool come in sequence, so no other call could prove that the tool works again. */
const retry = { base: 1, cap: 5, waitForProof: false }
const policies = {
  off: {
    defaults: Object.fromEntries(
      [...names, 'hedge', 'rateLimit', 'arguments', 'route'].map((name) => [name, false]),
    ),
  },
  default: { defaults: { retry } },
  enforce: { defaults: { retry, verdict: { output: 'enforce' }, arguments: { check: 'enforce' } } },
} as const

const outputSchema = {
  type: 'object',
  properties: { items: { type: 'array' } },
  required: ['items'],
}

function startServer(tools: readonly string[]): Promise<RawServer> {
  return RawServer.start(({ message }, response) => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: Json }
    const annotations = { readOnlyHint: true }
    const listed = tools.map((name) => ({ name, inputSchema: { type: 'object' }, outputSchema, annotations }))
    const result =
      method === 'tools/list'
        ? { tools: listed }
        : method === 'tools/call'
          ? resultOf(params?.arguments)
          : undefined
    if (result === undefined) return false
    return sendResult(response, id, result)
  })
}

function resultOf(args: unknown) {
  const structuredContent = { items: [args, args, args, args] }
  return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent }
}

type Seen = 'good' | 'told' | 'wrong'

interface Counted {
  readonly seen: Seen
  readonly tookMs: number
  /** Whether the error came from a breaker. */
  readonly isRejected: boolean
}

async function callOnce(client: RawClient, tool: string, number: number): Promise<Counted> {
  const args = { number }
  const since = performance.now()
  const reply = await client.post({
    jsonrpc: '2.0',
    id: `${tool} ${number}`,
    method: 'tools/call',
    params: { name: tool, arguments: args },
  })
  return {
    seen: judge(reply, resultOf(args)),
    tookMs: performance.now() - since,
    isRejected: reply.text.includes('BW_BREAKER_OPEN'),
  }
}

function judge({ status, messages }: RawReply, expected: object): Seen {
  const [message] = messages
  const result = message?.result as { isError?: boolean; _meta?: object } | undefined
  if (status !== 200 || result === undefined || result.isError === true) return 'told'
  const { _meta, ...rest } = result
  if (_meta !== undefined && 'dev.breakwater/partial' in _meta) return 'told'
  return JSON.stringify(rest) === JSON.stringify(expected) ? 'good' : 'wrong'
}

/** An attempt a fault was drawn for. */
interface Drawn {
  readonly fault: string
  readonly attempt: number
  readonly call: { readonly id: string }
}

type Fates = Record<'masked' | 'delayed' | 'surfaced' | 'escaped' | 'not_reached', number>

const noFates = (): Fates => ({ masked: 0, delayed: 0, surfaced: 0, escaped: 0, not_reached: 0 })

function fateOf({ seen }: Counted, delays: boolean): keyof Fates {
  if (seen === 'told') return 'surfaced'
  if (seen === 'wrong') return 'escaped'
  return delays ? 'delayed' : 'masked'
}

type Status = {
  readonly faults: readonly (Record<string, number> & {
    readonly name: string
    readonly discovery: Record<string, number>
  })[]
}

after(async () => {
  closeServers()
  await cleanUp()
})

for (const [policy, block] of Object.entries(policies)) {
  test(`with policies ${policy}, the reported fates of ${kinds.length} kinds of faults match the counts of a client`, async (t) => {
    const tools = [...kinds.map(({ tool }) => tool), outer.tool]
    const server = await startServer(tools)
    const journal = join(await newFolder(), 'journal.jsonl')
    const named = kinds.map((kind) => ({ name: kind.tool, ...kind }))
    const faults = [...named, outer, inner].map(({ tool, name, type, fault }: Kind & { name: string }) => ({
      name,
      type,
      rate: 0.5,
      ttl: '15m',
      match: { tool },
      ...fault,
    }))
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: { s: { url: server.url, era: 'legacy', trusted: true } },
      policies: block,
      chaos: { enabled: true, persist: true, seed: 7, journal: { file: journal }, faults },
    })
    await gateway.waitFor('up', 's')
    const client = await RawClient.open(gateway.mcp('s'))
    const counted = new Map<string, Counted>()
    await Promise.all(
      tools.map(async (tool) => {
        for (let number = 0; number < CALLS; number++)
          counted.set(`${tool} ${number}`, await callOnce(client, tool, number))
      }),
    )

    const { body } = await gateway.admin<Status>('/admin/chaos')
    const decided = body.faults.reduce((sum, fault) => sum + (fault.decided ?? 0), 0)
    let drawn: Drawn[] = []
    await until('the journal is written', async () => {
      // The last line may be incomplete.
      const lines = (await readFile(journal, 'utf8')).split('\n').slice(0, -1)
      const entries = lines.map((line) => (JSON.parse(line) as { record: Json }).record)
      const decisions = entries.filter(({ kind }) => kind === 'decision')
      drawn = decisions.filter(({ decision }) => decision === 'injected') as unknown as Drawn[]
      return decisions.length === decided
    })
    /** Returns the fates of a fault according to the client. */
    const expectedOf = (fault: string, delays: boolean, isReached: (one: Drawn) => boolean) => {
      const fates = noFates()
      let delayedMs = 0
      for (const one of drawn.filter((entry) => entry.fault === fault)) {
        const seen = counted.get(one.call.id)!
        const fate = isReached(one) ? fateOf(seen, delays) : 'not_reached'
        fates[fate]++
        if (fate === 'delayed') delayedMs += seen.tookMs
      }
      return { fates, delayedMs }
    }

    async function compare(fault: string, delays: boolean, isReached: (one: Drawn) => boolean = () => true) {
      const { fates, delayedMs } = expectedOf(fault, delays, isReached)
      const injected = Object.values(fates).reduce((sum, count) => sum + count, 0)
      assert.ok(injected > 0, `${fault} was never injected`)
      const said = body.faults.find(({ name }) => name === fault)!
      const { masked, delayed, surfaced, escaped, notReached } = said
      assert.deepEqual({ masked, delayed, surfaced, escaped, not_reached: notReached }, fates, fault)
      assert.deepEqual([said.injected, said.hits], [injected, injected - fates.not_reached], fault)
      assert.equal(said.discovery.decided, 0, fault)
      const label = `fault="${fault}"`
      const outcomes = await gateway.sums('breakwater_fault_outcomes_total', 'fate', label)
      assert.deepEqual({ ...noFates(), ...outcomes }, fates, fault)
      assert.equal(await gateway.metric('breakwater_faults_injected_total', label), injected, fault)
      const seconds = (await gateway.metric('breakwater_fault_delay_seconds_total', label)) ?? 0
      // Timers may fire slightly early.
      assert.ok(seconds * 1_000 >= fates.delayed * (HOLD_MS - 2), `${fault}: ${seconds} s`)
      assert.ok(seconds * 1_000 <= delayedMs, `${fault}: ${seconds} s of ${delayedMs} ms`)
      return said
    }

    for (const { tool, delays } of kinds)
      await t.test(tool, async () => {
        const said = await compare(tool, delays === true)
        const own = [...counted].filter(([id]) => id.startsWith(`${tool} `)).map(([, one]) => one)
        const untouched = own.filter(
          (_, number) => !drawn.some(({ fault, call }) => fault === tool && call.id === `${tool} ${number}`),
        )
        const rejected = own.filter(({ isRejected }) => isRejected).length
        assert.equal(
          untouched.filter(({ seen }) => seen !== 'good').length,
          untouched.filter(({ isRejected }) => isRejected).length,
        )
        const resent = drawn.filter(({ fault, attempt }) => fault === tool && attempt === 1).length
        assert.ok(said.resent! <= resent * 3 && said.rejections! >= rejected, tool)
        if (policy === 'off') assert.deepEqual([said.resent, said.rejections, rejected], [0, 0, 0])
      })

    await t.test(
      'an outer fault that ends a call keeps the inner fault of the same call from being reached',
      async () => {
        const ended = new Set(
          drawn.filter(({ fault }) => fault === 'outer').map(({ call, attempt }) => `${call.id} ${attempt}`),
        )
        await compare('outer', false)
        await compare('inner', false, ({ call, attempt }) => !ended.has(`${call.id} ${attempt}`))
      },
    )

    await t.test('every journal entry is about a call the client has made', async () => {
      const calls = await gateway.sums('breakwater_tool_calls_total', 'tool', 'server="s"')
      assert.deepEqual(calls, Object.fromEntries(tools.map((tool) => [tool, CALLS])))
      assert.equal(await gateway.metric('breakwater_chaos_engine_errors_total'), 0)
    })
  })
}
