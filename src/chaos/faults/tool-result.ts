import type { Call, Layer } from '../../mesh/call.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { NO_REPLY, resultIn, type Injection } from '../fault.ts'
import { apply, choose, type Materials, pathFor } from '../operators/apply.ts'
import { type OperatorName, operatorOf } from '../operators/index.ts'
import type { Detectability, Draw, Material, OperatorConfig } from '../operators/operator.ts'

export type ToolResult = Readonly<Record<string, unknown>>

/** The changed result with a note of the change; or the reason why the result stays unchanged. */
export type Change =
  { readonly result: ToolResult; readonly note: Readonly<Record<string, unknown>> } | string

/**
 * Returns a layer that lets calls run and changes their results. Replies without a final tool result (protocol errors,
 * questions, task handles) pass unharmed.
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

/** Returns a result with a single text; keeps the other fields of the result. */
export function textResult(
  { structuredContent: _, isError: __, ...rest }: ToolResult,
  text: string,
): ToolResult {
  return { ...rest, content: [{ type: 'text', text }] }
}

/** Returns the content blocks of a result. */
export const blocksOf = ({ content }: ToolResult): readonly unknown[] =>
  Array.isArray(content) ? content : []

/** Returns the text of a content block; undefined for all other blocks. */
export const textOf = (block: unknown): string | undefined =>
  isObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : undefined

function isFinal({ resultType, content, structuredContent }: ToolResult): boolean {
  if (resultType !== undefined && resultType !== 'complete') return false
  return content !== undefined || structuredContent !== undefined
}

/** The form of a result to change: its text, its structured content, or both alike. */
export type Sync = 'both' | 'structured_only' | 'text_only'

/** The record of an operator's change: the place in the value, and the parts of the result. */
export type Done = { readonly op: string; readonly path: string; readonly parts: readonly string[] }

/** A value for operators to work on. */
interface Part {
  readonly name: string
  readonly value: unknown
  /** Index of its content block; undefined for the structured content. */
  readonly block: number | undefined
  /** True when the value is the block's text itself; false for the parsed JSON of the text. */
  readonly raw: boolean
}

/**
 * Returns the parts of a result in which operators for the material `on` can work. Plain text is last, because it
 * offers fewer places to change.
 */
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
 * Returns a result changed by an operator, in all parts where the operator fits at the path from the first part;
 * undefined when the operator fits no part. Draws a missing path with the help of `schema`, the schema of the
 * structured content.
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

/** Draws one of the named operators and its place, from a result and the result's schema. */
export function chosen(
  result: ToolResult,
  names: readonly OperatorName[],
  sync: Sync,
  draw: Draw,
  choosing: Choosing = {},
): OperatorConfig | undefined {
  const materials: Materials = (on) => {
    // A cut in one of two equal forms would be obvious, and a result without its only block would be empty.
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

/** Returns the indentation of a JSON text. */
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
