import { z } from 'zod'
import type { Call, Layer, Outcome } from '../../mesh/call.ts'
import { glob, type Glob } from '../../mesh/match.ts'
import { isObject, errorText, INVALID_PARAMS } from '../../protocol/jsonrpc.ts'
import { NO_REPLY, resultIn, type Injection } from '../fault.ts'
import { json } from './shared.ts'

/** The key of each list's entries. */
const entriesKeys: Readonly<Record<string, string>> = {
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
}

/** The methods that return lists. */
export const listMethods = Object.keys(entriesKeys)

export type ListItem = Readonly<Record<string, unknown>>

/** One page of a list. */
export interface Page {
  readonly result: Readonly<Record<string, unknown>>
  readonly entries: readonly ListItem[]
  /** Returns the same page with other entries. */
  with(entries: readonly ListItem[]): Readonly<Record<string, unknown>>
}

export const nameOf = ({ name, uri, uriTemplate }: ListItem): string => String(name ?? uri ?? uriTemplate)

/** Returns the page in an outcome; undefined for any other outcome. */
function pageIn(call: Call, outcome: Outcome): Page | undefined {
  const key = entriesKeys[call.method]
  const result = resultIn(outcome)
  const entries = key === undefined ? undefined : result?.[key]
  if (key === undefined || result === undefined || !Array.isArray(entries)) return undefined
  return {
    result,
    entries: entries.filter(isObject),
    with: (others) => ({ ...result, [key]: others }),
  }
}

/** The change of a page: another result with a note of the change, or the reason why the page stays unchanged. */
type PageChange =
  | { readonly result: Readonly<Record<string, unknown>>; readonly note: Readonly<Record<string, unknown>> }
  | string

/** Returns a layer that sends the request for a list, and changes the page in the reply. */
export function changingPage(injection: Injection, make: (page: Page, call: Call) => PageChange): Layer {
  return (next) => (call) =>
    next(call).then((outcome) => {
      if (outcome.kind !== 'answered') {
        injection.notReached(NO_REPLY)
        return outcome
      }
      const page = pageIn(call, outcome)
      const change = page === undefined ? 'the reply is no list' : make(page, call)
      if (typeof change === 'string') {
        injection.notApplicable(change)
        return outcome
      }
      injection.note(change.note)
      const { result } = change
      // Sets `ttlMs` to 0 so that no cache keeps the changed page, unless the fault itself changes `ttlMs`.
      const isKept = page !== undefined && Number(page.result.ttlMs) > 0 && result.ttlMs === page.result.ttlMs
      return injection.change(outcome, isKept ? { ...result, ttlMs: 0 } : result)
    })
}

/** Methods of faults that change the entries of tools in the list, and the calls of these tools. */
export const toolMethods = ['tools/list', 'tools/call']

/** Names of tools, or globs over them; at most 1,000. */
export const toolNames = () => z.array(z.string().min(1)).max(1_000)

/** Returns a function that returns true for a name that matches any of these globs. */
export function anyOf(patterns: readonly string[]): Glob {
  const globs = patterns.map(glob)
  return (name) => globs.some((holds) => holds(name))
}

/** Returns a layer that applies `call` to tool calls, and `list` to all other requests. */
export function listOrCall(list: Layer, call: Layer): Layer {
  return (next) => {
    const [ofList, ofCall] = [list(next), call(next)]
    return (request) => (request.method === 'tools/call' ? ofCall(request) : ofList(request))
  }
}

/**
 * Returns a layer that answers calls of the tools matching `isOne` with an error about the parameters. The server gets
 * none of these calls.
 */
export function refusing(injection: Injection, isOne: Glob, message: (tool: string) => string): Layer {
  return (next) => (call) => {
    if (call.tool === undefined || !isOne(call.tool)) {
      injection.notApplicable('the fault does not name this tool')
      return next(call)
    }
    injection.note({ tool: call.tool, code: INVALID_PARAMS })
    return Promise.resolve(
      injection.reply(call, json(errorText(call.id, INVALID_PARAMS, message(call.tool)))),
    )
  }
}

/** Returns a server's error message for an unknown tool. */
export const unknownTool = (tool: string): string => `Unknown tool: ${tool}`
