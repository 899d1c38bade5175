import type { Message, RequestId } from '../../mesh/call.ts'
import { isObject, notificationText, paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { listChangeKey } from '../../protocol/lists.ts'
import { SUBSCRIPTION_ID_KEY } from '../../protocol/versions.ts'
import type { Post } from './post.ts'

/** The events that a client wants, from the param `notifications` of `subscriptions/listen`. */
export interface Filter {
  readonly toolsListChanged: boolean
  readonly promptsListChanged: boolean
  readonly resourcesListChanged: boolean
  readonly resourceSubscriptions: readonly string[]
}

const MAX_RESOURCES = 1_000

/** Returns a filter with only the events that the capabilities allow; undefined when invalid. */
export function readFilter(
  given: unknown,
  capabilities: Readonly<Record<string, unknown>>,
): Filter | undefined {
  if (!isObject(given)) return undefined
  const offers = (capability: string, feature: string) => {
    const offered = capabilities[capability]
    return isObject(offered) && offered[feature] === true
  }
  const { resourceSubscriptions: uris = [] } = given
  if (!Array.isArray(uris) || uris.length > MAX_RESOURCES || uris.some((uri) => typeof uri !== 'string'))
    return undefined
  return {
    toolsListChanged: given.toolsListChanged === true && offers('tools', 'listChanged'),
    promptsListChanged: given.promptsListChanged === true && offers('prompts', 'listChanged'),
    resourcesListChanged: given.resourcesListChanged === true && offers('resources', 'listChanged'),
    resourceSubscriptions: offers('resources', 'subscribe') ? [...new Set(uris as string[])] : [],
  }
}

/** Characters of URIs that count as one subscription; more characters count as further subscriptions. */
const URIS_LENGTH = 4_096

/** Returns how many subscriptions a filter counts as, by the length of its URIs. */
export function weightOf({ resourceSubscriptions }: Filter): number {
  const length = resourceSubscriptions.reduce((sum, uri) => sum + uri.length, 0)
  return Math.max(1, Math.ceil(length / URIS_LENGTH))
}

/**
 * An open `subscriptions/listen`. Acknowledges the filter, sends notifications with the subscription's id, and sends a
 * result at the end.
 */
export class Subscription {
  readonly filter: Filter
  readonly #id: RequestId
  readonly #post: Post
  readonly #resources: ReadonlySet<string>

  constructor(id: RequestId, filter: Filter, post: Post) {
    this.#id = id
    this.filter = filter
    this.#post = post
    this.#resources = new Set(filter.resourceSubscriptions)
  }

  /** True when the filter allows no event. */
  get isEmpty(): boolean {
    const { resourceSubscriptions, ...flags } = this.filter
    return resourceSubscriptions.length === 0 && !Object.values(flags).includes(true)
  }

  acknowledge(): void {
    const { resourceSubscriptions, ...flags } = this.filter
    const granted = Object.fromEntries(Object.entries(flags).filter(([, wanted]) => wanted))
    const notifications = resourceSubscriptions.length > 0 ? { ...granted, resourceSubscriptions } : granted
    this.#post.tell(this.#stamped('notifications/subscriptions/acknowledged', { notifications }))
  }

  /** Passes a notification on if the filter allows it. */
  tell(message: Message): void {
    const { value } = message
    const method = value.method as string
    const key = listChangeKey(message)
    const params = paramsOf(value)
    const wanted =
      key === undefined
        ? method === 'notifications/resources/updated' &&
          typeof params.uri === 'string' &&
          this.#resources.has(params.uri)
        : this.filter[key]
    if (wanted) this.#post.tell(this.#stamped(method, params))
  }

  end(): void {
    const result = { resultType: 'complete', _meta: { [SUBSCRIPTION_ID_KEY]: this.#id } }
    this.#post.finish({ text: resultText(this.#id, JSON.stringify(result)), status: 200 })
  }

  #stamped(method: string, params: Readonly<Record<string, unknown>>): string {
    const meta = isObject(params._meta) ? params._meta : {}
    return notificationText(method, { ...params, _meta: { ...meta, [SUBSCRIPTION_ID_KEY]: this.#id } })
  }
}
