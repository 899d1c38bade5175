/** The interface of replies, for the layers that do not see the wire. */
export type { BodySource, HttpReply } from '../../wire/http-reply.ts'
