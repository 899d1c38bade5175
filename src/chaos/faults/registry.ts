import { z } from 'zod'
import { derive, type Call, type Message } from '../../mesh/call.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { paramsOf, notificationText, parseJson } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType, Injection } from '../fault.ts'
import {
  anyOf,
  listOrCall,
  refusing,
  toolMethods,
  toolNames,
  unknownTool,
  changingPage,
  nameOf,
  listMethods,
} from './lists.ts'
import { sending } from './route.ts'
import { givenUp } from './shared.ts'
import { staleList, staleSchema } from './stale-lists.ts'

const missingSchema = z.strictObject({
  tools: toolNames().describe('Globs over the names of the missing tools, as their server knows them.'),
})

const toolMissing: FaultType<z.output<typeof missingSchema>> = {
  schema: missingSchema,
  family: 'registry',
  about: 'Tools are gone from the list, and calls to them fail.',
  use: 'To see whether an agent copes when a new version of the server drops a tool.',
  seen: 'The tool is gone from tools/list, and each call to it gets -32602, even for tools that write: nothing is sent.',
  containedBy: {
    policies: [],
    how: 'The error code blames the caller, so no policy retries the call or answers it: the agent has to read the list again.',
  },
  methods: toolMethods,
  withholds: true,
  sides: ['upstream', 'client'],
  aliases: { 'mcp-chaos': ['drop_tool'] },
  example: { name: 'tool-missing', rate: 1, ttl: '10m', match: { server: 'search' }, tools: ['query_*'] },
  layer({ tools }, injection) {
    const isGone = anyOf(tools)
    const list = changingPage(injection, (page) => {
      const gone = page.entries.map(nameOf).filter(isGone)
      if (gone.length === 0) return 'the page lists none of the tools'
      return { result: page.with(page.entries.filter((entry) => !isGone(nameOf(entry)))), note: { gone } }
    })
    return listOrCall(list, refusing(injection, isGone, unknownTool))
  },
}

const ghostSchema = z.strictObject({
  tools: toolNames().describe('Names of listed tools that do not exist.'),
})

const ghostTool: FaultType<z.output<typeof ghostSchema>> = {
  schema: ghostSchema,
  family: 'registry',
  about: 'Tools are listed that do not exist; calls to them fail.',
  use: 'To see how an agent treats a listed tool that cannot be called.',
  seen: 'Additional tools in tools/list; their calls get -32602: nothing is sent.',
  containedBy: {
    policies: [],
    how: "No policy can know that the tool does not exist; the server's next list is without the tool.",
  },
  methods: toolMethods,
  withholds: true,
  sides: ['upstream', 'client'],
  aliases: { 'mcp-chaos': ['registry_inconsistency'] },
  example: { name: 'ghost-tool', rate: 1, ttl: '10m', match: { server: 'search' }, tools: ['query_v2'] },
  layer({ tools }, injection) {
    const list = changingPage(injection, (page) => {
      if (page.result.nextCursor !== undefined) return 'not the last page of the list'
      const there = new Set(page.entries.map(nameOf))
      const ghosts = tools.filter((name) => !there.has(name))
      if (ghosts.length === 0) return 'the list has all of the tools already'
      return { result: page.with([...page.entries, ...ghosts.map(ghost)]), note: { ghosts } }
    })
    return listOrCall(
      list,
      refusing(injection, (name) => tools.includes(name), unknownTool),
    )
  },
}

/** Returns a list entry that looks like the entry of a real tool. */
const ghost = (name: string) => ({
  name,
  description: `${name.replace(/[_-]+/g, ' ')}.`,
  inputSchema: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
})

const movedSchema = z.strictObject({
  tools: toolNames().default(['*']).describe('Globs over the names of the moved tools.'),
  replacement: z
    .string()
    .regex(/^[^/]+(\/.+)?$/, 'expected SERVER or SERVER/TOOL')
    .describe("The tools' new server, and the new name there (SERVER/TOOL) if different."),
  mode: z
    .enum(['error', 'silent'])
    .default('error')
    .describe('Whether the caller gets an error, or the other server gets the call.'),
})

const moved: FaultType<z.output<typeof movedSchema>> = {
  schema: movedSchema,
  family: 'registry',
  about: 'A tool has moved to another server: calls get an error, or go to the other server.',
  use: 'To test clients after a tool was handed over to another server, with or without a notice.',
  seen: '-32602 with the new place of the tool, or, with `mode: silent`, an answer of another server.',
  containedBy: {
    policies: ['verdict'],
    how: 'If the tool has an outputSchema, verdict notices an answer of another shape. With `mode: error`, the agent can read the new place in the error.',
  },
  sides: ['upstream', 'client'],
  example: {
    name: 'moved',
    rate: 0.1,
    ttl: '10m',
    match: { server: 'search' },
    replacement: 'modern',
    mode: 'error',
  },
  sendsTo: ({ replacement, mode }) => (mode === 'silent' ? placeIn(replacement).server : undefined),
  layer({ tools, replacement, mode }, injection) {
    const isMoved = anyOf(tools)
    if (mode === 'error')
      return refusing(injection, isMoved, (tool) => `Tool ${tool} has moved, use ${replacement} instead`)
    const { server, name } = placeIn(replacement)
    const elsewhere = sending(injection, server, (call) => (name === undefined ? call : renamed(call, name)))
    return (next) => {
      const away = elsewhere(next)
      return (call) => {
        if (call.tool !== undefined && isMoved(call.tool)) return away(call)
        injection.notApplicable('the fault does not name this tool')
        return next(call)
      }
    }
  },
}

/** Returns the two parts of SERVER or SERVER/TOOL. */
function placeIn(replacement: string): { readonly server: string; readonly name: string | undefined } {
  const slash = replacement.indexOf('/')
  if (slash === -1) return { server: replacement, name: undefined }
  return { server: replacement.slice(0, slash), name: replacement.slice(slash + 1) }
}

/** Returns the same call with another tool name. */
function renamed(call: Call, tool: string): Call {
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'name'], tool),
    value: { ...value, params: { ...paramsOf(value), name: tool } },
  }
  return derive(call, { tool, message })
}

const none = z.strictObject({})
type None = z.output<typeof none>

const slowSchema = z.strictObject({
  delay: duration({ min: 1 }).default(10_000).describe('How much later the list arrives.'),
})

const slowList: FaultType<z.output<typeof slowSchema>> = {
  schema: slowSchema,
  family: 'registry',
  about: 'A list arrives late.',
  use: 'To check that a server with slow lists delays neither the start nor other servers.',
  seen: 'The previous list, until the new list has arrived; a list of all servers waits for at most `listTimeout`.',
  containedBy: {
    policies: [],
    how: 'The gateway fetches lists in the background and asks servers in parallel, so no call waits for a list.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  example: { name: 'slow-list', rate: 0.5, ttl: '10m', match: { server: 'search' }, delay: '5s' },
  layer:
    ({ delay }, injection) =>
    (next) =>
    (call) => {
      injection.note({ delayMs: delay })
      return injection.pause(delay, call).then((how) => (how === 'aborted' ? givenUp(call) : next(call)))
    },
}

const dropCursor: FaultType<None> = {
  schema: none,
  family: 'registry',
  about: 'The cursor to the next page of a list is missing: the list seems shorter.',
  use: 'To find out whether anybody notices that most of a long list is missing.',
  seen: 'The tools of the first page only.',
  containedBy: {
    policies: [],
    how: 'A short list looks like any other; compare the number of tools with the earlier number.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  example: { name: 'drop-cursor', rate: 0.1, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) =>
    changingPage(injection, ({ result: { nextCursor, ...rest } }) =>
      nextCursor === undefined ? 'the page has no cursor' : { result: rest, note: { dropped: 'nextCursor' } },
    ),
}

const invalidSchema = z.strictObject({
  cursor: z
    .string()
    .optional()
    .describe('The cursor; without it, sixteen random letters, the same on all pages of a list.'),
})

const invalidCursor: FaultType<z.output<typeof invalidSchema>> = {
  schema: invalidSchema,
  family: 'registry',
  about: 'A list has a cursor to a next page unknown to its server.',
  use: 'To test how a failure in the middle of a paged list affects the known part.',
  seen: "Nothing in the list of all servers: the last good list stays for the server's grace period. At the endpoint of one server, the agent gets the cursor.",
  containedBy: {
    policies: [],
    how: 'The gateway keeps the last complete list until it has read a new list to its end.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  example: { name: 'invalid-cursor', rate: 0.1, ttl: '10m', match: { server: 'search' } },
  layer: ({ cursor }, injection) =>
    changingPage(injection, ({ result }, { server, method }) => {
      // All pages get the same cursor: with new cursors, a list would never end at a server that ignores cursors.
      const drawn = () => ({ cursor: letters((purpose) => injection.draw(purpose)) })
      const nextCursor = cursor ?? injection.memory(`cursor ${server} ${method}`, drawn).cursor
      return { result: { ...result, nextCursor }, note: { nextCursor } }
    }),
}

const letters = (draw: (purpose: string) => number): string =>
  Array.from({ length: 16 }, (_, at) => String.fromCharCode(97 + Math.floor(draw(`letter ${at}`) * 26))).join(
    '',
  )

const dupName: FaultType<None> = {
  schema: none,
  family: 'registry',
  about: 'A list has two entries of the same name; the second copies another entry, if there is another.',
  use: 'To test how the gateway and agents resolve name collisions in a list.',
  seen: "The list of all servers has each name once, but an entry may have another tool's description and schema. The endpoint of one server, and the client side, have both entries.",
  containedBy: {
    policies: [],
    how: 'The catalog uses one entry per name, so a duplicate does no more harm than a wrong description.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  example: { name: 'dup-name', rate: 0.5, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) =>
    changingPage(injection, (page) => {
      const { entries } = page
      const at = Math.floor(injection.draw('entry') * entries.length)
      const entry = entries[at]
      if (entry === undefined) return 'the page has no entries'
      const key = ['name', 'uri', 'uriTemplate'].find((name) => name in entry) ?? 'name'
      const twin = { ...entries[(at + 1) % entries.length], [key]: entry[key] }
      return { result: page.with([...entries, twin]), note: { name: nameOf(entry) } }
    }),
}

const NO_TTL = 'lists of the legacy era have no ttlMs'

/** Returns whether the reader of a list, the gateway or the agent, uses the legacy era. */
function isLegacy({ side, faultEnvironment }: Injection, call: Call): boolean {
  if (side === 'client') return call.caller.era === 'legacy'
  return faultEnvironment.kindOf(call)?.era === 'legacy'
}

const ttlSchema = z.strictObject({
  ttlMs: z
    .int()
    .default(315_360_000_000)
    .describe("The list's lifetime in milliseconds: 10 years, or a negative number."),
})

const badTtl: FaultType<z.output<typeof ttlSchema>> = {
  schema: ttlSchema,
  family: 'registry',
  about: 'A list claims an absurd lifetime.',
  use: 'To check that a server cannot make caches keep its list for years.',
  seen: 'Nothing.',
  containedBy: {
    policies: [],
    how: 'The gateway refreshes lists at its own intervals, whatever lifetime a server gives.',
  },
  methods: listMethods,
  sides: ['upstream', 'client'],
  eras: { only: ['modern'], otherwise: NO_TTL },
  example: { name: 'bad-ttl', rate: 0.5, ttl: '10m', match: { server: 'modern' } },
  layer: ({ ttlMs }, injection) =>
    changingPage(injection, ({ result }, call) =>
      isLegacy(injection, call)
        ? NO_TTL
        : { result: { ...result, ttlMs }, note: { ttlMs, was: result.ttlMs } },
    ),
}

/** Shortest time between two timers, in milliseconds: notifications due in between are sent together. */
const FINEST_MS = 10

const stormSchema = z.strictObject({
  perSecond: z.number().gt(0).max(1_000).default(10).describe('Notifications per second.'),
  duration: duration({ min: 1 }).default(10_000).describe('How long a storm lasts.'),
})

type StormConfig = z.output<typeof stormSchema>

/** Sends many notifications after a hit call, which itself passes unchanged. */
const listChangedStorm: FaultType<StormConfig> = {
  schema: stormSchema,
  family: 'registry',
  about: 'A server announces over and over that its tools have changed.',
  use: 'To check that a flood of notifications does not become a flood of list requests.',
  seen: 'A few list_changed notifications.',
  containedBy: { policies: [], how: 'Discovery combines simultaneous notifications into a single round.' },
  methods: toolMethods,
  sides: ['upstream', 'client'],
  example: {
    name: 'storm',
    rate: 0.01,
    ttl: '10m',
    match: { server: 'search' },
    perSecond: 50,
    duration: '5s',
  },
  layer: (config, injection) => (next) => (call) => {
    const storm = injection.memory(`storm ${call.server}`, () => ({ on: false }))
    if (storm.on) injection.notApplicable(`there is a storm at ${call.server} already`)
    else {
      storm.on = true
      injection.note({ notifications: totalOf(config) })
      blow(config, call.server, injection, () => (storm.on = false))
    }
    return next(call)
  },
}

const totalOf = ({ perSecond, duration }: StormConfig): number => Math.floor((perSecond * duration) / 1000)

/** Sends notifications at the configured rate until the duration is over or the fault ends, and then calls `over`. */
function blow(
  { perSecond, duration }: StormConfig,
  server: string,
  injection: Injection,
  over: () => void,
): void {
  const { clock, released, faultEnvironment } = injection
  const text = notificationText('notifications/tools/list_changed')
  const message: Message = { text, value: parseJson(text) as Message['value'] }
  const startedAt = clock.now()
  const most = totalOf({ perSecond, duration })
  let told = 0
  let cancel = () => {}

  function end(): void {
    cancel()
    released.removeEventListener('abort', end)
    over()
  }
  function gust(): void {
    const elapsedMs = clock.now() - startedAt
    const due = Math.min(most, Math.floor((elapsedMs * perSecond) / 1000))
    for (; told < due; told++) faultEnvironment.tell(server, message)
    if (elapsedMs >= duration) return end()
    cancel = clock.after(Math.min(Math.max(1000 / perSecond, FINEST_MS), duration - elapsedMs), gust)
  }
  released.addEventListener('abort', end, { once: true })
  if (released.aborted) return end()
  gust()
}

/** Faults of a server's lists. */
export const registryFaults = {
  'registry.tool_missing': toolMissing,
  'registry.ghost_tool': ghostTool,
  'registry.stale_list': staleList,
  'registry.stale_schema': staleSchema,
  'registry.moved': moved,
  'registry.slow_list': slowList,
  'registry.drop_cursor': dropCursor,
  'registry.invalid_cursor': invalidCursor,
  'registry.dup_name': dupName,
  'registry.bad_ttl': badTtl,
  'registry.list_changed_storm': listChangedStorm,
} as const
