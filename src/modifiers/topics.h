/* topics.h - declares the texts about methods, formats and the program that `oneshot help TOPIC`
 * prints. */
#ifndef OSH_TOPICS_H
#define OSH_TOPICS_H

typedef struct osh_topic {
    const char *name, *also; // `also`: second name of the topic, or NULL
    /* `does`: description of the topic in the list of topics.
     * `text`: the whole text, without a newline at the end. */
    const char *does, *text;
} osh_topic;
extern const osh_topic osh_topics[];            // a topic whose name is NULL ends the table
/* Returns the topic whose name is `name`, or NULL if there is none. The case of letters is
 * ignored. */
const osh_topic *osh_topic_find(const char *name);
#endif
