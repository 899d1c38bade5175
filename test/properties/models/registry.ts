import assert from 'node:assert/strict'
import fc from 'fast-check'
import { type Config, config as schema } from '../../../src/config/schema/schema.ts'
import { AggregateEndpoint } from '../../../src/downstream/endpoints.ts'
import type { Agents } from '../../../src/gateway/agents.ts'
import { createEvents } from '../../../src/gateway/events.ts'
import { compileGeneration } from '../../../src/gateway/generation.ts'
import { applyConfig } from '../../../src/gateway/reload.ts'
import { liveWith } from '../../support/live.ts'
import { faultOfName, Names } from '../../../src/registry/names.ts'
import { Intents } from '../../../src/telemetry/intents.ts'
import { TaskCalls } from '../../../src/telemetry/task-calls.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { UnfinishedReplies } from '../../../src/upstreams/unfinished-replies.ts'
import { mcpRequest, read } from '../../downstream/test-generation.ts'
import { defaultLimits } from '../../support/default-limits.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { noExperiments } from '../../support/no-experiments.ts'
import { noChaos } from '../../support/no-faults.ts'
import { noRecorder } from '../../support/no-recorder.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { ScriptedUpstream } from '../../support/scripted-upstream.ts'
import { silent } from '../../support/log.ts'
import { asyncTarget } from '../target.ts'

/** One name is a prefix of another, and one ends with the separator's character. */
const serverNames = ['a', 'a-b', 'b', 'constructor'] as const
const endpoints = ['http://127.0.0.1:1/mcp', 'http://127.0.0.1:2/mcp'] as const

/** Tools with names that models accept, names that need shortening, and names that are hidden. */
const toolNames = ['x', 'x__y', 'read.file', 'toString', 'l'.repeat(100), 'bell\u0007', ''] as const

/** How long the state of a removed owner is kept, in milliseconds. */
const GONE_MS = 15 * 60_000

interface Entry {
  readonly url: (typeof endpoints)[number]
  readonly include: readonly string[]
  readonly disabled: boolean
  /** A setting of the connection itself. */
  readonly connections: number
  /** Settings of a policy with observable state. */
  readonly settings: number
}

const entry: fc.Arbitrary<Entry> = fc.record({
  url: fc.constantFrom(...endpoints),
  include: fc.constantFrom(['*'], ['*'], ['x*'], ['none']),
  disabled: fc.nat({ max: 4 }).map((n) => n === 0),
  connections: fc.constantFrom(4, 4, 5),
  settings: fc.constantFrom(1, 1, 2),
})

const op = fc.oneof(
  fc.record({
    op: fc.constant('reload' as const),
    /** Servers in this order, each with its entry. */
    servers: fc
      .shuffledSubarray([...serverNames])
      .chain((names) => fc.tuple(...names.map((name) => entry.map((one) => [name, one] as const)))),
    /** How many servers stay unchanged. */
    keeps: fc.nat({ max: 4 }),
  }),
  fc.record({
    op: fc.constant('list' as const),
    url: fc.constantFrom(...endpoints),
    tools: fc.shuffledSubarray([...toolNames]),
  }),
  fc.record({ op: fc.constant('advance' as const), ms: fc.constantFrom(1_000, 60_000, GONE_MS) }),
)

interface KeptState {
  settings: number
  state: object
  goneAt: number | undefined
}

const agentsOf = (told: { changes: number }) =>
  ({
    forgetLists: () => undefined,
    endOrphans: () => undefined,
    tellChanged: () => void told.changes++,
  }) as unknown as Agents

/** A registry of scripted servers, and the endpoint over all of them. */
function setUp() {
  const clock = new ManualClock()
  const metrics = createMetrics()
  /** The endpoints' lists, and the open upstreams. */
  const lists = new Map<string, readonly string[]>(endpoints.map((url) => [url, ['x', 'read.file']]))
  const open = new Set<ScriptedUpstream & { url: string }>()
  const context = testPolicyContext(clock)
  const parts = {
    clock,
    load: { detached: 0 },
    log: silent,
    metrics,
    chaos: noChaos,
    experiments: noExperiments,
    replies: new UnfinishedReplies(defaultLimits.replies, () => undefined),
    intents: new Intents({ clock, metrics }),
    taskCalls: new TaskCalls(clock),
    tracing: undefined,
    recorder: noRecorder,
    context,
    events: createEvents(),
    upstreams: (_: string, config: Config['mcpServers'][string]) => {
      const url = config.type === 'stdio' ? '' : config.urls[0]!
      const upstream = new ScriptedUpstream((method, { name }) => {
        if (method === 'tools/call')
          return { result: { content: [{ type: 'text', text: `${url} ${String(name)}` }] } }
        const empty = { tools: [], prompts: [], resources: [], resourceTemplates: [] }
        return { result: { ...empty, tools: (lists.get(url) ?? []).map((name) => ({ name })) } }
      })
      const close = upstream.close.bind(upstream)
      const known = Object.assign(upstream, {
        url,
        close: () => {
          open.delete(known)
          return close()
        },
      })
      open.add(known)
      return [known]
    },
  }
  const live = liveWith(compileGeneration(schema.parse({}), undefined, parts), clock)
  const told = { changes: 0 }
  const endpoint = new AggregateEndpoint(clock)
  async function ask(method: string, params: Record<string, unknown> = {}) {
    const { request } = mcpRequest(method, params)
    let replied: ReturnType<typeof read> | undefined
    void endpoint.request(live.current, request).then((response) => (replied = read(response)))
    for (let turn = 0; turn < 50 && replied === undefined; turn++) await clock.advance(0)
    return replied ?? assert.fail(`${method} was not answered`)
  }
  return {
    clock,
    lists,
    open,
    live,
    told,
    ask,
    states: context.state,
    apply: (config: Config) =>
      applyConfig(config, new Set(), {
        live,
        parts,
        state: context.state,
        agents: agentsOf(told),
        follow: () => undefined,
      }),
  }
}

const names = new Names('__')

/** Returns the names that agents see, under all names of the servers, in order. */
const shownOf = (entries: ReadonlyMap<string, Entry>, lists: ReadonlyMap<string, readonly string[]>) =>
  [...entries].flatMap(([server, { url, include, disabled }]) =>
    disabled
      ? []
      : (lists.get(url) ?? [])
          .filter((tool) => include[0] === '*' || (include[0] === 'x*' && tool.startsWith('x')))
          .filter((tool) => faultOfName('tools', tool) === undefined)
          .map((tool) => ({ exposed: names.exposeTool(server, tool), url, tool })),
  )

/**
 * Compares the registry under reloads with a model of a few lines: names listed and routed at /mcp, servers taken over,
 * closed upstreams, and policies' kept state.
 */
export const registryTarget = asyncTarget(
  'whatever reloads change, /mcp has the tools of the servers in force, calls reach them, and only what is unchanged goes on',
  fc.array(op, { minLength: 1, maxLength: 8 }),
  async (ops) => {
    const { clock, lists, open, live, told, ask, states, apply } = setUp()
    let entries = new Map<string, Entry>()
    const kept = new Map<string, KeptState>()
    const everShown = new Set<string>()
    for (const given of ops) {
      if (given.op === 'reload') {
        const before = entries
        const servers = live.current.servers
        entries = new Map(
          given.servers.map(([name, entry], at) => [
            name,
            at < given.keeps ? (before.get(name) ?? entry) : entry,
          ]),
        )
        const changes = told.changes
        apply(
          schema.parse({
            mcpServers: Object.fromEntries(
              [...entries].map(([name, { url, include, disabled, connections }]) => [
                name,
                { url, tools: { include }, disabled, connections },
              ]),
            ),
          }),
        )
        const now = live.current.servers
        let same = true
        for (const [name, { url, connections, disabled }] of entries) {
          const old = before.get(name)
          const goesOn =
            !disabled &&
            old !== undefined &&
            !old.disabled &&
            old.url === url &&
            old.connections === connections
          assert.equal(now.has(name), !disabled)
          if (!disabled) assert.equal(now.get(name) === servers.get(name), goesOn, `${name} stays open`)
          same &&= goesOn || disabled
        }
        same &&= now.size === servers.size
        assert.equal(told.changes - changes, same ? 0 : 1, 'agents hear of other servers, once')
        for (const [owner, state] of kept) {
          const [server = '', url] = JSON.parse(owner) as string[]
          const there = entries.get(server)
          const isThere = there !== undefined && !there.disabled && there.url === url
          state.goneAt = isThere ? undefined : (state.goneAt ?? clock.now())
        }
      } else if (given.op === 'list') {
        lists.set(given.url, given.tools)
        for (const upstream of open)
          if (upstream.url === given.url)
            for (const session of upstream.upstreamSessions)
              session.say({ method: 'notifications/tools/list_changed' })
      } else {
        await clock.advance(given.ms)
        for (const [owner, { goneAt }] of kept)
          if (goneAt !== undefined && clock.now() - goneAt >= GONE_MS) kept.delete(owner)
      }
      await clock.advance(2_000)

      const shown = shownOf(entries, lists)
      const { result } = await ask('tools/list')
      const listed = (result?.tools as { name: string }[]).map(({ name }) => name)
      assert.deepEqual(
        listed,
        shown.map(({ exposed }) => exposed),
      )
      for (const { exposed, url, tool } of shown) {
        everShown.add(exposed)
        const { result: said } = await ask('tools/call', { name: exposed, arguments: {} })
        assert.deepEqual(said?.content, [{ type: 'text', text: `${url} ${tool}` }], exposed)
      }
      const isShown = new Set(listed)
      for (const name of everShown) {
        if (isShown.has(name)) continue
        const server = name.slice(0, name.indexOf('__'))
        const there = entries.get(server)
        // A tool missing from the list may still exist: only its server can tell.
        if (there !== undefined && !there.disabled && there.include[0] === '*') continue
        const { error } = await ask('tools/call', { name, arguments: {} })
        if (there === undefined || there.disabled || there.include[0] === 'none')
          assert.equal(error?.code, -32602, name)
      }
      const inForce = [...entries].filter(([, { disabled }]) => !disabled)
      assert.equal(open.size, inForce.length, 'only connections that left the config are closed')
      for (const [server, { url, settings }] of inForce) {
        const owner = JSON.stringify([server, url])
        const key = {
          kind: 'test',
          set: 'default',
          server,
          endpoint: live.current.servers.get(server)!.endpoints[0],
          config: settings,
        }
        const fresh = {}
        const state = states.get(key, () => fresh)
        const known = kept.get(owner)
        const goesOn = known?.settings === settings
        assert.equal(state, goesOn ? known.state : fresh, `the state of ${owner}`)
        if (!goesOn) kept.set(owner, { settings, state, goneAt: undefined })
      }
    }
    live.current.close()
  },
  100,
)
