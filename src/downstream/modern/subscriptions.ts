import type { Message, RequestId } from '../../mesh/call.ts'
import { isObject, notificationText, paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { listChangeKey } from '../../protocol/lists.ts'
import { SUBSCRIPTION_ID_KEY } from '../../protocol/versions.ts'
import type { Post } from './post.ts'

/** The events that a client wants to hear of: the `notifications` of `subscriptions/listen`. */
export interface Filter {
  readonly toolsListChanged: boolean
  readonly promptsListChanged: boolean
  readonly resourcesListChanged: boolean
  readonly resourceSubscriptions: readonly string[]
}

/** Most resources of one subscription. */
const MAX_RESOURCES = 1_000

/** Reads a filter, narrowed to what the capabilities cover; undefined when it is none. */
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

/** So many characters of URIs are part of one subscription; more of them make it count as more than one. */
const URIS_LENGTH = 4_096

/** As how many subscriptions one counts, for what it keeps. */
export function weightOf({ resourceSubscriptions }: Filter): number {
  const length = resourceSubscriptions.reduce((sum, uri) => sum + uri.length, 0)
  return Math.max(1, Math.ceil(length / URIS_LENGTH))
}

/** One open `subscriptions/listen`: says what it will tell, tells it under its own id, and says goodbye. */
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

  /** Whether nothing of what the client asked for can be told. */
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

  /** Passes a notification on if the client asked for it. */
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
