import type { UnreadReplies } from './unread-replies.ts'

/** What keeps one agent from taking what is for all. */
export interface Guards {
  /** Replies that wait for clients which do not read them. */
  readonly unread: UnreadReplies
}
