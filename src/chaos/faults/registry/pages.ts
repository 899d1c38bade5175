import type { Call, Layer, Outcome } from '../../../mesh/call.ts'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { resultIn, type Shot } from '../../fault.ts'

/** Where each list has its entries. */
const entriesKeys: Readonly<Record<string, string>> = {
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
}

/** The methods that give lists. */
export const listMethods = Object.keys(entriesKeys)

export type Entry = Readonly<Record<string, unknown>>

/** One page of a list. */
export interface Page {
  readonly result: Readonly<Record<string, unknown>>
  readonly entries: readonly Entry[]
  /** The same page with other entries. */
  with(entries: readonly Entry[]): Readonly<Record<string, unknown>>
}

export const nameOf = ({ name, uri, uriTemplate }: Entry): string => String(name ?? uri ?? uriTemplate)

/** The page that an outcome holds; undefined when it is none. */
export function pageIn(call: Call, outcome: Outcome): Page | undefined {
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

/** What is done to a page: another result, with what was done; or why nothing is. */
export type PageChange =
  | { readonly result: Readonly<Record<string, unknown>>; readonly note: Readonly<Record<string, unknown>> }
  | string

/** A layer that has the list fetched and changes the page that comes. */
export function changingPage(shot: Shot, make: (page: Page, call: Call) => PageChange): Layer {
  return (next) => (call) =>
    next(call).then((outcome) => {
      const page = pageIn(call, outcome)
      const change = page === undefined ? 'the reply is no list' : make(page, call)
      if (typeof change === 'string') {
        shot.notApplicable(change)
        return outcome
      }
      shot.note(change.note)
      return shot.change(outcome, change.result)
    })
}
