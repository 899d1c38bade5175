import { z } from 'zod'
import { derive, type Layer, type Outcome } from '../../mesh/call.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { elements, locate, members, type Span } from '../../protocol/json-span.ts'
import { paramsOf, parseJson } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import { resultIn, type FaultType, type Injection } from '../fault.ts'
import { copyOf, endOf, firstOf, givenUp } from './shared.ts'

/** A member of a call's arguments, in the text of the request; `text` includes its name. */
interface Argument {
  readonly name: string
  readonly text: string
  readonly value: Span
}

/** Returns the arguments of a call, in their order. */
function argumentsIn(text: string): { readonly span: Span; readonly list: readonly Argument[] } | undefined {
  const span = locate(text, ['params', 'arguments'])
  if (span === undefined || text[span.start] !== '{') return undefined
  const list = members(text, span.start).map(({ key, keyStart, start, end }) => ({
    name: key,
    text: text.slice(keyStart, end),
    value: { start, end },
  }))
  return { span, list }
}

/** The changed arguments as JSON text, with a note of the change; or the reason why the arguments stay unchanged. */
type Mutation =
  | {
      readonly text: string
      readonly note: Readonly<Record<string, unknown>>
      /** True when the change alters the meaning of the call: then even a good answer is wrong. */
      readonly asksElse: boolean
    }
  | string

/** Returns a layer that sends calls with changed arguments. The rest of the call stays as the agent wrote it. */
function mutating(injection: Injection, make: (args: readonly Argument[], text: string) => Mutation): Layer {
  function corrupted(outcome: Outcome): Outcome {
    const result = resultIn(outcome)
    return result === undefined ? outcome : injection.change(outcome, result)
  }
  return (next) => (call) => {
    const { text, value } = call.message
    const found = argumentsIn(text)
    const mutation = found === undefined || found.list.length === 0 ? NONE : make(found.list, text)
    if (found === undefined || typeof mutation === 'string') {
      injection.notApplicable(typeof mutation === 'string' ? mutation : NONE)
      return next(call)
    }
    injection.note(mutation.note)
    const { start, end } = found.span
    const args = parseJson(mutation.text)
    const message = {
      text: text.slice(0, start) + mutation.text + text.slice(end),
      value: { ...value, params: { ...paramsOf(value), arguments: args } },
    }
    const sent = next(derive(call, { message }))
    return mutation.asksElse ? sent.then(corrupted) : sent
  }
}

const NONE = 'the call has no arguments'

const argument = z
  .string()
  .min(1)
  .max(256)
  .optional()
  .describe('The name of the argument, at the top level; without it, the fault draws an argument.')

/** Returns the argument of this name or, without a name, a random argument; undefined when no argument fits. */
function oneOf(
  args: readonly Argument[],
  name: string | undefined,
  injection: Injection,
): Argument | undefined {
  const possible = name === undefined ? args : args.filter((arg) => arg.name === name)
  return possible[Math.floor(injection.draw('argument') * possible.length)]
}

/** Returns the arguments whose value is a list with at least two elements. */
const lists = (args: readonly Argument[], text: string): Argument[] =>
  args.filter(({ value }) => text[value.start] === '[' && elementsOf(text, value).length > 1)

const elementsOf = (text: string, { start }: Span): string[] =>
  [...elements(text, start)].map((span) => text.slice(span.start, span.end))

const written = (args: readonly Argument[], changed?: Argument, text?: string): string =>
  `{${args.map((arg) => (arg === changed ? text : arg.text)).join(',')}}`

const lostSchema = z.strictObject({ argument })

const argumentLost: FaultType<z.output<typeof lostSchema>> = {
  schema: lostSchema,
  family: 'request',
  about: 'An argument of a call gets lost on the way.',
  use: 'To find out whether a server, or the gateway, notices a missing argument, or answers another question.',
  seen: 'An error about the parameters, or an answer to another question.',
  containedBy: {
    policies: ['arguments'],
    how: 'On the client side, the policy arguments notices a missing required argument; upstream only the server can.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'argument-lost', rate: 0.05, ttl: '10m', match: { server: 'search' } },
  layer: (config, injection) =>
    mutating(injection, (args) => {
      const lost = oneOf(args, config.argument, injection)
      if (lost === undefined) return `the call has no argument ${config.argument}`
      const text = written(args.filter(({ name }) => name !== lost.name))
      return { text, note: { lost: lost.name }, asksElse: true }
    }),
}

const duplicatedSchema = z.strictObject({
  argument,
  form: z
    .enum(['key', 'list'])
    .default('key')
    .describe(
      '`key`: the JSON text has the argument twice, with the same value (RFC 8259 leaves the result open), only on the side `upstream`. `list`: each element of a list appears twice.',
    ),
})

const argumentDuplicated: FaultType<z.output<typeof duplicatedSchema>> = {
  schema: duplicatedSchema,
  family: 'request',
  about: 'A call has an argument twice.',
  use: 'To test parsers with a duplicate key, and tools with a list of duplicate elements.',
  seen: 'Nothing, or an error of a server with a strict parser; with `form: list`, the answer to a longer list.',
  containedBy: {
    policies: [],
    how: 'A schema accepts a list with equal elements, unless the schema says `uniqueItems`; a parser uses one of two equal keys, or refuses both.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'argument-twice', rate: 0.05, ttl: '10m', match: { server: 'search' }, form: 'key' },
  layer: ({ argument: name, form }, injection) =>
    mutating(injection, (args, text) => {
      const isList = form === 'list'
      if (!isList && injection.side === 'client')
        return 'the gateway refuses requests with a duplicate key before any policy or fault'
      const possible = isList ? args.filter(({ value }) => text[value.start] === '[') : args
      const twice = oneOf(possible, name, injection)
      if (twice === undefined) return isList ? NO_LIST : `the call has no argument ${name}`
      const note = { twice: twice.name, form }
      if (!isList) return { text: written(args, twice, `${twice.text},${twice.text}`), note, asksElse: false }
      const doubled = elementsOf(text, twice.value).flatMap((element) => [element, element])
      return { text: written(args, twice, withList(twice, doubled)), note, asksElse: true }
    }),
}

const reorderedSchema = z.strictObject({
  argument,
  of: z
    .enum(['members', 'list'])
    .default('members')
    .describe(
      '`members`: reverses the arguments, which means the same in JSON. `list`: reverses the elements of a list.',
    ),
})

const argumentReordered: FaultType<z.output<typeof reorderedSchema>> = {
  schema: reorderedSchema,
  family: 'request',
  about: 'The arguments of a call, or the elements of an argument, arrive in another order.',
  use: 'To find servers that rely on the order of members, and lists whose order matters only to the agent.',
  seen: 'Nothing; with `of: list`, the answer to another list.',
  containedBy: {
    policies: [],
    how: 'The order of members means nothing in JSON, and idempotency and caches ignore it. No schema can check the order of a list.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'argument-order', rate: 0.05, ttl: '10m', match: { server: 'search' }, of: 'members' },
  layer: ({ argument: name, of }, injection) =>
    mutating(injection, (args, text) => {
      if (of === 'members')
        return args.length < 2
          ? 'the call has one argument only'
          : { text: written(args.toReversed()), note: { reordered: 'members' }, asksElse: false }
      const turned = oneOf(lists(args, text), name, injection)
      if (turned === undefined) return NO_LIST
      const list = withList(turned, elementsOf(text, turned.value).reverse())
      return { text: written(args, turned, list), note: { reordered: turned.name }, asksElse: true }
    }),
}

const NO_LIST = 'no matching argument is a list that is long enough'

/** Returns the text of an argument with other elements. */
const withList = ({ name }: Argument, list: readonly string[]): string =>
  `${JSON.stringify(name)}:[${list.join(',')}]`

const twiceSchema = z.strictObject({
  gap: duration({ max: 60_000 })
    .default(0)
    .describe('How long after the first delivery the second delivery follows; at most a minute.'),
})

/**
 * Sends the call twice; the agent gets the answer to the first delivery. The second delivery has its own id, because
 * some servers would treat equal ids as one call. The layer waits for both answers: when the agent gets its answer, the
 * server has got both deliveries.
 */
const duplicated: FaultType<z.output<typeof twiceSchema>> = {
  schema: twiceSchema,
  family: 'request',
  about: 'A call reaches the server twice.',
  use: 'To find out whether a write delivered twice takes effect twice, as behind a proxy that repeats requests.',
  seen: 'A single answer; the call takes effect twice.',
  containedBy: {
    policies: ['idempotency'],
    how: 'On the client side, idempotency runs a call with a key only once; upstream only the server can recognise the second delivery, by its own key. Writes need `allowWrites: true`.',
  },
  sides: ['upstream', 'client'],
  example: {
    name: 'delivered-twice',
    rate: 0.05,
    ttl: '10m',
    match: { server: 'search' },
  },
  layer:
    ({ gap }, injection) =>
    (next) =>
    (call) => {
      const { end, leave } = endOf(call)
      const first = next(call)
      const second = injection.pause(gap, call).then((how) => {
        injection.note({ deliveries: how === 'over' ? 2 : 1 })
        return how === 'over' ? next(copyOf(call, 1, end)) : undefined
      })
      return first
        .then((outcome) => firstOf(second, injection.released, call.signal).then(() => outcome))
        .then((outcome) => {
          // Aborts a copy that is still under way: otherwise the copy would outlive the fault.
          end.abort(gatewayError('cancelled', 'nobody waits for the call any more'))
          leave()
          return call.signal.aborted ? givenUp(call) : outcome
        })
    },
}

/** Faults that hit a request on the way to its server. */
export const requestFaults = {
  'request.argument_lost': argumentLost,
  'request.argument_duplicated': argumentDuplicated,
  'request.argument_reordered': argumentReordered,
  'request.duplicated': duplicated,
}
