import type { Call, Layer } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { NO_REPLY, resultIn, type Injection } from '../fault.ts'
import { apply, choose, type Materials, pathFor } from '../operators/apply.ts'
import { type OperatorName, operatorOf } from '../operators/index.ts'
import type { Detectability, Draw, Material, OperatorConfig } from '../operators/operator.ts'

export type ToolResult = Readonly<Record<string, unknown>>

/** Another result, and what was done to get it; or why there is none. */
export type Change =
  { readonly result: ToolResult; readonly note: Readonly<Record<string, unknown>> } | string

/**
 * A layer that lets the call run and changes its result. Replies that are no final result of a tool (errors of the
 * protocol, questions, handles of tasks) pass unharmed.
 */
export function changing(injection: Injection, make: (result: ToolResult, call: Call) => Change): Layer {
  return (next) => (call) =>
    next(call).then((outcome) => {
      if (outcome.kind !== 'answered') {
        injection.notReached(NO_REPLY)
        return outcome
      }
      const result = resultIn(outcome)
      const change =
        result !== undefined && isFinal(result) ? make(result, call) : 'the reply is not the result of a tool'
      if (typeof change === 'string') {
        injection.notApplicable(change)
        return outcome
      }
      injection.note(change.note)
      return injection.change(outcome, change.result)
    })
}

/** A result of one text, with what else it said about itself. */
export function textResult(
  { structuredContent: _, isError: __, ...rest }: ToolResult,
  text: string,
): ToolResult {
  return { ...rest, content: [{ type: 'text', text }] }
}

/** The content blocks of a result. */
export const blocksOf = ({ content }: ToolResult): readonly unknown[] =>
  Array.isArray(content) ? content : []

/** The text of a content block; undefined for all other blocks. */
export const textOf = (block: unknown): string | undefined =>
  isObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : undefined

function isFinal({ resultType, content, structuredContent }: ToolResult): boolean {
  if (resultType !== undefined && resultType !== 'complete') return false
  return content !== undefined || structuredContent !== undefined
}

/** The form of a result that is changed: its text, its structured content, or both alike. */
export type Sync = 'both' | 'structured_only' | 'text_only'

/** The record of an operator's change: the place in the value, and the parts of the result. */
export type Done = { readonly op: string; readonly path: string; readonly parts: readonly string[] }

/** One thing that operators can work on. */
interface Part {
  readonly name: string
  readonly value: unknown
  /** Index of its content block; undefined for the structured content. */
  readonly block: number | undefined
  /** Whether the value is the block's text itself, not what was read from it. */
  readonly raw: boolean
}

/** The parts of a result that are of this material. Plain text stands behind JSON, because there is less to change. */
function partsOf(result: ToolResult, sync: Sync, on: Material): readonly Part[] {
  if (on === 'blocks')
    return sync === 'structured_only'
      ? []
      : [{ name: '/content', value: blocksOf(result), block: undefined, raw: false }]
  const json: Part[] = []
  const plain: Part[] = []
  const { structuredContent } = result
  if (sync !== 'text_only' && on !== 'json_text' && structuredContent !== undefined)
    json.push({ name: '/structuredContent', value: structuredContent, block: undefined, raw: false })
  for (const [block, content] of sync === 'structured_only' ? [] : blocksOf(result).entries()) {
    const text = textOf(content)
    if (text === undefined) continue
    const name = `/content/${block}/text`
    const value = parseJson(text)
    if (value === undefined) plain.push({ name, value: text, block, raw: true })
    else if (on === 'json_text') json.push({ name, value: text, block, raw: true })
    else json.push({ name, value, block, raw: false })
  }
  return on === 'json_or_text' ? [...json, ...plain] : json
}

/**
 * A result that one operator has changed, in all parts where it fits at the path that the first of them gives;
 * undefined when it fits in none. A path that has to be drawn is drawn with what `schema`, that of the structured
 * content, says.
 */
export function mutated(
  result: ToolResult,
  config: OperatorConfig,
  sync: Sync,
  draw: Draw,
  schema?: unknown,
): { readonly result: ToolResult; readonly done: Done } | undefined {
  const parts = partsOf(result, sync, operatorOf(config.op).on)
  const path = firstFound(parts, ({ value }) => pathFor(config, value, draw, schema))
  if (path === undefined) return undefined
  let changed = result
  const names: string[] = []
  for (const part of parts) {
    const applied = apply({ ...config, path }, part.value, draw)
    if (applied === 'not_applicable') continue
    changed = withPart(changed, part, applied.value)
    names.push(part.name)
  }
  return names.length === 0 ? undefined : { result: changed, done: { op: config.op, path, parts: names } }
}

/** Limits on a choice of operators. */
export interface Choosing {
  /** The JSON Schema of the structured content. */
  readonly schema?: unknown
  readonly detectable?: Detectability | undefined
}

/** Draws one of the named operators and its place, from what there is in a result and what its schema says of it. */
export function chosen(
  result: ToolResult,
  names: readonly OperatorName[],
  sync: Sync,
  draw: Draw,
  choosing: Choosing = {},
): OperatorConfig | undefined {
  const materials: Materials = (on) => {
    // One that cuts one of two forms of the same would show itself, and without its last block a result is empty.
    if (on === 'json_text' && result.structuredContent !== undefined) return undefined
    if (on === 'blocks' && blocksOf(result).length < 2) return undefined
    return partsOf(result, sync, on)[0]?.value
  }
  return choose(names, materials, draw, choosing)
}

function withPart(result: ToolResult, { name, block, raw }: Part, value: unknown): ToolResult {
  if (name === '/content') return { ...result, content: value }
  if (block === undefined) return { ...result, structuredContent: value }
  const content = blocksOf(result).map((other, index) => {
    if (index !== block) return other
    return {
      ...(other as object),
      text: raw ? value : JSON.stringify(value, null, indentOf(textOf(other) ?? '')),
    }
  })
  return { ...result, content }
}

/** How a JSON text is indented. */
const indentOf = (text: string): string | undefined => /^[[{]\r?\n([ \t]+)/.exec(text)?.[1]

function firstFound<Item, Found>(
  items: readonly Item[],
  find: (item: Item) => Found | undefined,
): Found | undefined {
  for (const item of items) {
    const found = find(item)
    if (found !== undefined) return found
  }
  return undefined
}
